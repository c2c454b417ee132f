"""Reads and writes files of networks (ONNX, .tflite), for the layers that use their parts.

Nothing here executes or translates a network.
"""
