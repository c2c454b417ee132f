"""A small network that recognises handwritten digits, with images it was not trained on.

`tools/train_digits.py` writes `data/`; nothing here needs what that script needs. This package
uses the HAL's models and nothing of processes, queues or executors.
"""
