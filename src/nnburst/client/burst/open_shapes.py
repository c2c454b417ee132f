"""Memory for requests whose shapes change from one to the next: one pool, and rooms that grow.

Requests of a burst's `execute` are copied in, run and copied out one after the other, so all of them may
lie in the same memory. Then a shape that was not seen before costs no pool, which the driver would map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnburst.client.arguments import Parameter
from nnburst.client.memory import Memory


class OpenShapes:
    """What the requests of one burst with open shapes share. One thread at a time.

    Attributes:
        rooms: bytes to offer for each output: what is declared, or twice what was needed once.
        is_open: whether any shape is open.
    """

    def __init__(
        self,
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
        allocate: Callable[[int], Memory],
    ) -> None:
        """Begin with a guess; `allocate` makes pools."""
        self.rooms = [parameter.first_room for parameter in outputs]
        self.is_open = not all(parameter.known for parameter in (*inputs, *outputs))
        self._allocate = allocate
        self._pool: Memory | None = None

    def memory(self, size: int) -> Memory:
        """A pool of at least so many bytes; requests may share it."""
        if not self.is_open:
            return self._allocate(size)
        if self._pool is None or self._pool.closed or self._pool.size < size:
            before = 0 if self._pool is None else self._pool.size
            self._pool = self._allocate(max(size, 2 * before))
        return self._pool

    def grow(self, sizes: Sequence[int]) -> None:
        """Offer as much from now on."""
        self.rooms = [max(pair) for pair in zip(self.rooms, sizes, strict=True)]

    def replace(self) -> None:
        """Take another pool next time: a request that was given up may still be under way in this one."""
        self._pool = None
