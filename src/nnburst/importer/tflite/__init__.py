"""Translates .tflite files to NNAPI models."""
