"""The .tflite format: tables that are read with every offset checked, and written."""
