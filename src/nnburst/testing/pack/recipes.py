"""What the cases of one operation, type and rank look like."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Edge(StrEnum):
    """Values at the edge of what a type can hold."""

    ZEROS = "zeros"
    LARGEST = "largest"
    INFINITE = "infinite"
    NOT_A_NUMBER = "not a number"
    LOWEST = "lowest"
    HIGHEST = "highest"


class Recipe(NamedTuple):
    """How one case is drawn.

    Attributes:
        name: unique among RECIPES.
        extent: of one axis; 0 for whatever comes.
        plain: nothing optional (no activation, no broadcasting), and all tensors are inputs.
        constants: tensors but the first are constants.
        edge: what some elements are.
    """

    name: str
    extent: int = 0
    plain: bool = False
    constants: bool = False
    edge: Edge | None = None


#: Beyond 1,000, and a multiple of nothing.
LARGE: Final = 1031
_EXTENTS: Final = (1, 2, 7, 64, LARGE)

#: The small ones come first: a driver that supports none of them is asked no further.
RECIPES: Final = tuple(
    sorted(
        (
            *(Recipe(f"plain {n}", n, plain=True) for n in _EXTENTS),
            *(Recipe(f"constants {n}", n, plain=True, constants=True) for n in (2, 7, LARGE)),
            *(Recipe(f"any {n} {letter}", n) for n in _EXTENTS for letter in "ab"),
            *(Recipe(f"any constants {n}", n, constants=True) for n in (2, 64)),
            *(Recipe(f"edge {edge}", 7, plain=True, edge=edge) for edge in Edge),
        ),
        key=lambda recipe: recipe.extent,
    )
)
#: Cases of each triple; if recipes cannot be drawn, others take their place.
LEAST: Final = 20
FILLING: Final = tuple(Recipe(f"more {n}", (3, 5, 4)[n % 3]) for n in range(LEAST))
