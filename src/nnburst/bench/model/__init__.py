"""Accuracy, latency and preparation of .tflite networks through a driver process.

    data_sets.py     photographs, digits and random inputs
    accuracy.py      a driver's outputs beside those of the reference engine in this process
    latency.py       routes in turn, and the driver's own durations
    preparation.py   from a file to the first result, cold and with a cache
    report.py        all of it as one HTML page

What the original's test suite for machine learning (MLTS) did: the driver beside the reference engine,
with the same models on the same data.
"""
