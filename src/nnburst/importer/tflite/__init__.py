"""From .tflite files to NNAPI models."""
