"""The `litert` executor: NNAPI models lowered to .tflite in memory and run by LiteRT's C library.

Needs the extra `litert`. No client and no driver imports this package by name;
`nnburst inspect` and the benchmark do.
"""
