"""ONNX files, read without the `onnx` package: nothing is believed that was not checked."""
