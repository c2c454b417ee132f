"""Runs models and whole ONNX graphs by onnxruntime's C library (extra `onnxruntime`)."""
