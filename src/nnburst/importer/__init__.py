"""Translates files of networks (.tflite, ONNX) to NNAPI models."""
