"""Android's CTS program for the NNAPI C interface, built from its own sources and run against our library.

`build` compiles it, `program` runs a batch of its cases and reads what it prints, `run` spreads all cases
over processes and goes on behind crashes, `devices` has sets of drivers to run them with, `expected` lists
which cases cannot hold here, `report` has what came out. `python -m cts SOURCES` does all of it (`make cts
CTS_SOURCES=SOURCES`).

The sources are a checkout of Android's NeuralNetworks module (Android 13); nothing of them is part of this.
"""
