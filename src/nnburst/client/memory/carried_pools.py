"""Models that bring the bytes of their pools along, as `nnburst.load` returns them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.memory.memory import Memory
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model


class CarriesPools(Protocol):
    """A model together with the bytes that its CONSTANT_REFERENCE operands lie in."""

    @property
    def model(self) -> Model:
        """The model, which declares the pools and their sizes."""

    @property
    def pools(self) -> Sequence[npt.NDArray[Any]]:
        """The bytes of each, in the model's order."""


@contextmanager
def unpacked(
    model: Model | CarriesPools, pools: Sequence[Memory]
) -> Iterator[tuple[Model, Sequence[Memory]]]:
    """The bare model and its pools; what it carries is copied into pools that live in the block.

    Raises:
        InvalidArgument: it is not a model, or `pools` are given though the model brings its own.
    """
    if isinstance(model, Model):
        yield model, pools
        return
    bare = bare_model(model)
    if pools:
        raise InvalidArgument(f"pools: {len(pools)} given, the model brings its own")
    with ExitStack() as stack:
        yield bare, [stack.enter_context(_copied(pool)) for pool in model.pools]


def bare_model(model: Model | CarriesPools) -> Model:
    """The model without the bytes of its pools.

    Raises:
        InvalidArgument: it is not a model.
    """
    bare = model if isinstance(model, Model) else getattr(model, "model", None)
    if not isinstance(bare, Model):
        raise InvalidArgument(
            f"model: of type {type(model).__name__}, expected a Model or what nnburst.load returns"
        )
    return bare


def _copied(content: npt.NDArray[Any]) -> Memory:
    memory = Memory(content.nbytes)
    np.asarray(memory)[...] = content.reshape(-1).view(np.uint8)
    return memory
