"""Reads and writes files of networks (ONNX, .tflite) by their parts, for the layers that use them.

Nothing here executes or translates a network.
"""
