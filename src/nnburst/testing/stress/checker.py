"""The checker: beside the clients, one network again and again on a connection of its own."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final, Self

from nnburst.client.connect import connect
from nnburst.testing.stress.network import PATIENCE, SUCCESS, Network, message_of, outcome_of

#: Seconds between two of its executions.
_PAUSE: Final = 0.05
#: Executions of one connection: then it connects anew, as the next program would.
_EACH: Final = 60


class Checker:
    """Runs until it is stopped. A context manager."""

    def __init__(self, address: str, path: str = "") -> None:
        """Check the driver at `address` with the network of a file, or a sum."""
        self._address = address
        self._network = Network(path)
        self._done = threading.Event()
        self.counts: Counter[str] = Counter()
        self.messages: list[str] = []
        self._thread = threading.Thread(target=self._run, name="stress checker")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                self._connection()
            except Exception as error:
                self.counts[outcome_of(error)] += 1
                self.messages.append(f"checker: {message_of(error)}")
                self._done.wait(_PAUSE)

    def _connection(self) -> None:
        network = self._network
        with (
            connect(self._address, timeout=PATIENCE) as device,
            device.prepare(network.model, timeout=PATIENCE) as prepared,
        ):
            for _ in range(_EACH):
                network.check(prepared.execute(network.inputs, timeout=PATIENCE).outputs)
                self.counts[SUCCESS] += 1
                if self._done.wait(_PAUSE):
                    return
