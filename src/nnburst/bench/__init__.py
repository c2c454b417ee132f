"""What `nnburst bench burst` is made of.

A contestant exchanges something with another process; `rounds` runs all of them in turn, in blocks of a few
milliseconds, because the cores of a virtual machine change their distance within a run.
"""
