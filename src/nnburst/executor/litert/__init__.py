"""Runs NNAPI models by LiteRT's C library, lowered to .tflite in memory.

Needs the extra `litert`. No client and no driver imports this package by name;
`nnburst inspect` and the benchmark do.
"""
