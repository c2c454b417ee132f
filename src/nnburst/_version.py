"""Has the version of this package, for every layer; it imports nothing."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
