"""The whole set, and models of vector files as members of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nnburst.testing.conformance.vectors import Vector, build
from nnburst.testing.models.small_models.drawn import drawn_vectors
from nnburst.testing.models.small_models.made import made_models
from nnburst.testing.models.small_models.source import SmallModel


def all_models() -> Iterator[SmallModel]:
    """Every small model: first those made by hand, then the drawn ones. About 350."""
    yield from made_models()
    yield from map(from_vector, drawn_vectors())


def some_per_operation(models: Iterable[SmallModel], count: int = 1) -> Iterator[SmallModel]:
    """The first `count` of each operation; one with several counts for each of them."""
    seen: Counter[int] = Counter()
    for model in models:
        if any(seen[operation] < count for operation in model.operations):
            seen.update(model.operations)
            yield model


def from_vector(vector: Vector) -> SmallModel:
    """The model of a vector, with what the vector feeds and room for what it expects."""
    built = build(vector)
    return SmallModel(
        vector.name,
        built.model,
        tuple(built.pools),
        tuple(vector.array_of(operand) for operand in vector.inputs),
        tuple(max(1, len(vector.bytes_of(operand) or b"")) for operand in vector.outputs),
    )
