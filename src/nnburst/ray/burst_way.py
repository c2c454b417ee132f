"""A host on this machine, by a burst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from nnburst.client.connect import connect
from nnburst.hal.closing import Closing
from nnburst.ray.place import Place
from nnburst.serving.network import read_network

Array = np.ndarray[Any, Any]


class BurstWay(Closing):
    """A burst, which remembers its requests. One thread at a time.

    Attributes:
        place: the host.
    """

    def __init__(
        self,
        place: Place,
        _model: str,
        source: str,
        timeout: float,
        _credentials: Any,  # noqa: ANN401
    ) -> None:
        """Connect, prepare the model, open the burst.

        Raises:
            NnburstError: any of it failed; another container's driver is one that does not connect.
        """
        self.place = place
        network = read_network(source)
        self._device = connect(place.address, timeout=timeout)
        try:
            self._burst = self._device.prepare(network).open_burst()
        except BaseException:
            self._device.close()
            raise

    def infer(self, inputs: Sequence[Array], timeout: float) -> list[Array]:
        """Execute once."""
        return cast("list[Array]", self._burst.execute(inputs, timeout=timeout).outputs)

    def close(self) -> None:
        """Leave the driver."""
        self._device.close()
