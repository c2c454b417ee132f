"""The messages of the control channel, one module for each interface of the HAL.

A call is a struct below `Call`, its answer a `Reply` around a struct below `Result`. Upcalls (driver to
client) are the same on a second socket, below `Upcall`. The structs of `nnburst.hal` are fields here as they
are. Decoding checks types and ranges of the envelope; models and requests are validated by the driver
afterwards.

A family has one name: `messages/F.py` has its messages, `driver/calls/F.py` answers them by
functions of the same names, and the function of `client/` that sends one is named with the message's words.
`nnburst.control.protocol` finds all modules of this folder, so a new message is on no list.

An asynchronous call (`PrepareModel`, `Execute`) is answered with whether it was launched;
the outcome comes as exactly one upcall that names the call's `callback`, with the same status if it was not
accepted.

NNAPI: the names follow IDevice, IPreparedModel, IBuffer, IExecution, IBurst and their callbacks.
"""
