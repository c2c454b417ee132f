"""Implements the C interface of NNAPI, libneuralnetworks.so, over `nnburst.runtime`.

The library (csrc/capi) checks nulls and handles, starts or finds an interpreter and calls `entry`. `entry`
carries each function out by its row of the table in `functions`, or by a function of `handlers`. Header,
entry points and documentation are written from the same table. `installed` has the places of header and
library.
"""
