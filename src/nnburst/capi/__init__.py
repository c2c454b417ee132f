"""The C interface of NNAPI over `nnburst.runtime`: what stands behind libneuralnetworks.so.

The library (csrc/capi) checks nulls and handles, starts or finds an interpreter and calls `entry`, which
calls one function of `handlers` for each function of the interface. `interface` is the table that header,
entry points and documentation are written from; `installed` has the places of header and library.
"""
