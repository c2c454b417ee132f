"""A host on this machine, by a burst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnburst.client.connect import connect
from nnburst.hal.closing import Closing
from nnburst.hal.errors import InvalidArgument
from nnburst.ray.place import Place
from nnburst.serving.network import read_network

Array = np.ndarray[Any, Any]


class BurstWay(Closing):
    """A burst with one bound request. One thread at a time.

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
            prepared = self._device.prepare(network)
            self._burst = prepared.open_burst()
            known = all(each.known for each in (*prepared.inputs, *prepared.outputs))
            self._bound = self._burst.bind() if known else None
        except BaseException:
            self._device.close()
            raise

    def infer(self, inputs: Sequence[Array], timeout: float) -> list[Array]:
        """Execute once."""
        if self._bound is None:
            return list(self._burst.execute(inputs, timeout=timeout).outputs)
        views = self._bound.inputs
        if len(inputs) != len(views):
            raise InvalidArgument(f"inputs: {len(inputs)} given, the model has {len(views)}")
        for index, (view, array) in enumerate(zip(views, inputs, strict=True)):
            if view is None or array.shape != view.shape or array.dtype != view.dtype:
                expected = None if view is None else (view.shape, view.dtype.name)
                raise InvalidArgument(
                    f"inputs[{index}]: {array.shape} of {array.dtype}, expected {expected}"
                )
            view[...] = array
        return [output.copy() for output in self._bound.run(timeout).outputs]

    def close(self) -> None:
        """Leave the driver."""
        self._device.close()
