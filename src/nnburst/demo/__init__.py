"""Builds the demos' networks, prepares their inputs and reads their answers.

The demos are about digits, faces, and three kinds of sounds. This package uses the HAL's models, but no
processes, queues or executors. `tools/train_digits.py` writes `data/`.
"""
