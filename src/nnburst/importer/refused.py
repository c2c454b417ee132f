"""How the parts of the importer say that a network cannot be had."""

from __future__ import annotations

from nnburst.hal.errors import InvalidArgument


class Refused(InvalidArgument):
    """NNAPI cannot express this; the caller adds the operator."""
