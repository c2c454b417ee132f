"""The networks of the demos: their models, the inputs that they are given and the reading of their answers.

There are digits, faces, and three kinds of sounds. This package uses the HAL's models and nothing of
processes, queues or executors. `tools/train_digits.py` writes `data/`.
"""
