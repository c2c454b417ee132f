"""Whole ONNX graphs by onnxruntime's C library (extra `onnxruntime`).

extension.py  dev.nnburst.onnx as drivers register it
checks.py     what a client's graph may not name, and whether it is what the client says of it
native.py     libonnxruntime.so through csrc/onnxruntime.c
executor.py   the executor
"""
