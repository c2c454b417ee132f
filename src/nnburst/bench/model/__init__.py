"""Measures accuracy, latency and preparation of networks through a driver process.

The driver is compared with the reference engine, on the same models and data, as in the original's test suite
for machine learning (MLTS).
"""
