"""`python -m nnburst.serving`: started by a driver's supervisor, not meant to be typed."""

import sys

from nnburst.serving.front import main

if __name__ == "__main__":
    sys.exit(main())
