"""Measures nnburst beside lower bounds and other libraries, for the commands `nnburst bench …`.

A contestant exchanges messages with another process. `rounds` runs all contestants in turn, in blocks of a
few milliseconds, because the cores of a virtual machine may be moved within a run.
"""
