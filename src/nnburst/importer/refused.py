"""What the parts of the importer raise if a network cannot be imported."""

from __future__ import annotations

from nnburst.hal.errors import InvalidArgument


class Refused(InvalidArgument):
    """NNAPI cannot express this; the caller adds the operator."""
