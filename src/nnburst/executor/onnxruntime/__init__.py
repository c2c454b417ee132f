"""Whole ONNX graphs by onnxruntime's C library (extra `onnxruntime`)."""
