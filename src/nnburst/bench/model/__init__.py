"""Measures accuracy, latency and preparation of networks through a driver process.

The driver is compared with the reference engine on the same models and data, as in Android's Machine Learning
Test Suite (MLTS).
"""
