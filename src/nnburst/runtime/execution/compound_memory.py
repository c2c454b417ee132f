"""CompoundMemory: the temporaries of one plan, kept from computation to computation."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nnburst.hal.closing import Closing
from nnburst.hal.model import Model
from nnburst.runtime.argument import Bytes
from nnburst.runtime.execution.temporaries import SourceModels, Temporaries, TemporaryLayout
from nnburst.runtime.planning.plan import CompoundPlan


@dataclass(frozen=True, slots=True)
class Source:
    """The model that a plan was made for.

    Attributes:
        model: the client's, finished.
        pools: bytes of its pools.
    """

    model: Model
    pools: Sequence[Bytes]


class CompoundMemory(Closing):
    """Temporaries for as many computations as run at once. Thread-safe.

    Attributes:
        plan: that they are for.
        models: whose operands they are.
    """

    def __init__(self, plan: CompoundPlan, source: Source) -> None:
        """Lay them out; nothing is allocated before the first computation."""
        self.plan: Final = plan
        self.models: Final = SourceModels(plan, source.model)
        self._source: Final = source
        self._layout: Final = TemporaryLayout(plan, self.models)
        self._lock: Final = threading.Lock()
        self._free: list[Temporaries] = []
        self._closed = False

    def take(self) -> Temporaries:
        """Some that no computation uses; those used last come first.

        Raises:
            ResourceExhausted: there is not so much memory.
        """
        with self._lock:
            if self._free:
                return self._free.pop()
        return Temporaries(self._layout, self.models, self._source.model, self._source.pools)

    def release(self, temporaries: Temporaries, *, usable: bool = True) -> None:
        """Keep them for the next computation, or give them up if a driver may still write to them."""
        with self._lock:
            if usable and not self._closed:
                self._free.append(temporaries)
                return
        temporaries.close()

    def close(self) -> None:
        """Free all that no computation uses; the others go when theirs ends."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for temporaries in free:
            temporaries.close()
