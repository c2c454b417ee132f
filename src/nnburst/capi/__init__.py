"""Implements the C interface of NNAPI, libneuralnetworks.so, over `nnburst.runtime`.

The library (csrc/capi) checks nulls and handles, starts or finds an interpreter and calls `entry`. `entry`
executes each function by its row of the table in `functions`, or by a function of `handlers`. Header,
entry points and documentation are generated from the same table. `installed` finds the header and the
library.
"""
