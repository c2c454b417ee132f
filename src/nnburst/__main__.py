"""`python -m nnburst` is the command `nnburst`."""

from __future__ import annotations

import sys

from nnburst.cli import main

if __name__ == "__main__":
    sys.exit(main())
