"""What a compilation gets from planning, and what planning needs from the compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnburst.runtime.planning.plan import Part, Plan

T = TypeVar("T")

#: Has a device prepare a part and returns what came of it. A step gets no deadline and no attributes, a
#: simple plan gets the compilation's (RT:P9, P16).
Prepare = Callable[[Part], T]
#: Gives back what a thrown-away plan had prepared.
Release = Callable[[T], None]


@dataclass(frozen=True, slots=True)
class Planned(Generic[T]):
    """A plan whose parts are prepared.

    Attributes:
        plan: simple or compound.
        prepared: what `Prepare` returned: one for a simple plan, else one for each execution step, in order.
        fell_back: the whole model was given to the CPU after planning had failed (RT:P2).
    """

    plan: Plan
    prepared: tuple[T, ...]
    fell_back: bool = False
