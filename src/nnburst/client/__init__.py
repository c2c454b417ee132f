"""The client: what a program uses to reach a driver. Rooms, from the ground up.

session    the connection to a driver: handshake, upcalls, callbacks, its process and its end
memory     pools with numpy views, driver-managed buffers, arrays against a model's operands
execution  every way to execute over the socket
burst      executions over shared memory
resilient  devices, prepared models and bursts that outlive their driver

`launch` and `connect` give a `Device`, which prepares a `PreparedModel`, which executes and opens bursts.
"""
