"""A client's model once it is finished: what plans are made for (RT:M10)."""

from __future__ import annotations

from dataclasses import dataclass

from nnburst.hal.model import Model, Subgraph


@dataclass(frozen=True, slots=True)
class FinishedModel:
    """A valid model in run order. Subgraph 0 is the main one, n + 1 is `referenced[n]`.

    Attributes:
        model: operations in run order without trailing default arguments, consumers counted anew;
            operands are all there under the client's numbers, used or not.
        run_orders: for each subgraph the client's operation at each position of the run order (RT:M11).
        relaxed: for each subgraph whether float32 may be computed as float16.
        architecture_hash: 32 bytes over everything but the weights (RT:T6).
    """

    model: Model
    run_orders: tuple[tuple[int, ...], ...]
    relaxed: tuple[bool, ...]
    architecture_hash: bytes

    def subgraph(self, number: int) -> Subgraph:
        """A subgraph by its number."""
        return self.model.referenced[number - 1] if number else self.model.main
