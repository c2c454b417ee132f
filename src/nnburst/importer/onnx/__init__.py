"""From ONNX files to NNAPI models."""
