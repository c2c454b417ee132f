"""Translates ONNX files to NNAPI models."""
