"""Measures nnburst beside floors and rivals: the measurements behind the commands `nnburst bench …`.

A contestant exchanges something with another process; `rounds` runs all of them in turn, in blocks of a few
milliseconds, because the cores of a virtual machine change their distance within a run.
"""
