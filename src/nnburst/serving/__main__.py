"""Starts a front: `python -m nnburst.serving`, which a driver's supervisor runs."""

import sys

from nnburst.serving.front import main

if __name__ == "__main__":
    sys.exit(main())
