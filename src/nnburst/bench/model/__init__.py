"""Accuracy, latency and preparation of networks through a driver process.

    measured_network.py
                     a network with its truth and golden sequences; list files
    sounds.py        the networks of the sound demos as workloads
    data_sets.py     photographs, digits and random inputs
    accuracy.py      a driver's outputs beside those of the reference engine in this process
    evaluators.py    what outputs are worth beside the truth and golden sequences
    layers.py        two devices operation by operation
    latency.py       routes in turn, and the driver's own durations
    preparation.py   from a file to the first result, cold and with a cache
    histogram.py     durations as bars on one axis, and rows of a CSV file
    report.py        all of it as one HTML page

What the original's test suite for machine learning (MLTS) did: the driver beside the reference engine,
with the same models on the same data.
"""
