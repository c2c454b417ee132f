"""Builds the demos' networks, prepares their inputs and reads their answers.

There are digits, faces, and three kinds of sounds. This package uses the HAL's models and nothing of
processes, queues or executors. `tools/train_digits.py` writes `data/`.
"""
