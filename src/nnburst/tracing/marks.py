"""The names of slices: `[NN_<layer>_<phase>]detail`. NNAPI: nnapi/Tracing.h.

`[SW]` before it: the slice takes the place of the one that it lies in. `[SUB]`: its time is taken from the
slice that it lies in, and counts for its own layer and phase.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.slices import Layer, Phase

_MARK: Final = re.compile(r"(\[SW\])?(\[SUB\])?\[NN_(L[A-Z])_(P[A-Z]+)\](.*)", re.DOTALL)
#: The parser's own layer: what is in it is not looked at.
IGNORED: Final = "LX"


class Mark(NamedTuple):
    """A name, taken apart."""

    layer: Layer
    phase: Phase
    detail: str
    switches: bool = False
    subtracts: bool = False

    def __str__(self) -> str:
        before = f"{'[SW]' if self.switches else ''}{'[SUB]' if self.subtracts else ''}"
        return f"{before}[NN_{self.layer}_{self.phase}]{self.detail}"


def is_mark(name: str) -> bool:
    """Whether a slice's name is one of ours."""
    return "[NN_" in name


def parse(name: str) -> Mark:
    """Take a name apart.

    Raises:
        InvalidArgument: it is not a mark, or names a layer or a phase that there is not.
    """
    found = _MARK.fullmatch(name)
    if found is None:
        raise InvalidArgument(f"mark: {name!r}, expected [NN_<layer>_<phase>]detail")
    switches, subtracts, layer, phase, detail = found.groups()
    try:
        return Mark(Layer(layer), Phase(phase), detail, switches is not None, subtracts is not None)
    except ValueError as error:
        raise InvalidArgument(f"mark: {name!r}: {error}") from None
