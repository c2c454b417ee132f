"""How much slower executions are beside a client that prepares again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from nnburst.client.connect import connect
from nnburst.client.prepared_model import PreparedModel
from nnburst.testing.stress.network import PATIENCE, Network

#: Seconds between the beginnings of two preparations, of a block of executions, and before the first block.
_EVERY: Final = 0.02
_BLOCK: Final = 0.25
_WARM_UP: Final = 0.5
#: Share by which executions may become slower, and by which the ratios of blocks may spread to tell.
MOST: Final = 0.50
_MOST_SPREAD: Final = 0.20
#: Pairs of blocks of which a median tells something.
_FEWEST: Final = 7


@dataclass(frozen=True, slots=True)
class Degradation:
    """What was found.

    Attributes:
        slower: the median of how much longer executions took beside preparations, as a share.
        spread: of the pairs of blocks, from the first quartile to the third, as a share of the median.
        pairs: blocks alone, and as many beside.
        preparations: that there were beside.
    """

    slower: float
    spread: float
    pairs: int
    preparations: int

    @property
    def noisy(self) -> bool:
        """Whether nothing can be said."""
        return self.pairs < _FEWEST or self.spread > _MOST_SPREAD

    @property
    def failed(self) -> bool:
        """Whether executions became slower than they may."""
        return not self.noisy and self.slower > MOST

    def __str__(self) -> str:
        """In words."""
        verdict = "noisy" if self.noisy else f"at most {MOST:+.0%} expected"
        return (
            f"executions took {self.slower:+.0%} beside {self.preparations} preparations"
            f" (pairs of blocks spread by {self.spread:.0%}: {verdict})"
        )


def of_ratios(ratios: list[float], preparations: int) -> Degradation:
    """What ratios of blocks, beside to alone, say."""
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return Degradation(float(middle) - 1, float((high - low) / middle), len(ratios), preparations)


def degrade(address: str, network: Network, seconds: float) -> Degradation:
    """Execute in blocks, in turn alone and beside a client of its own that prepares every 20 ms.

    Raises:
        NnburstError: a call failed.
        WrongAnswer: a result is not as before.
    """
    ratios: list[float] = []
    with (
        _preparing(address) as beside,
        connect(address, timeout=PATIENCE) as device,
        device.prepare(network.model, timeout=PATIENCE) as prepared,
    ):
        until = time.monotonic() + seconds
        _block(prepared, network, min(_WARM_UP, seconds / 4))
        while not ratios or time.monotonic() < until:
            alone = _block(prepared, network, _BLOCK)
            with beside.at_work():
                ratios.append(_block(prepared, network, _BLOCK) / alone)
    return of_ratios(ratios, beside.preparations)


class _Preparer:
    """A thread that prepares while it is let, over a connection of its own."""

    def __init__(self, address: str) -> None:
        self.preparations = 0
        self._address = address
        self._ready = threading.Event()
        self._let = threading.Event()
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stress preparations")

    def start(self) -> None:
        """Begin, and wait for the connection: what a launch takes is not beside any block."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._done.set()
        self._let.set()
        self._thread.join()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Prepare meanwhile.

        Raises:
            NnburstError: a preparation failed.
        """
        self._let.set()
        try:
            yield
        finally:
            self._let.clear()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        network = Network()
        try:
            with connect(self._address, timeout=PATIENCE) as device:
                self._ready.set()
                while self._let.wait() and not self._done.is_set():
                    next_one = time.monotonic() + _EVERY
                    device.prepare(network.model, timeout=PATIENCE).close()
                    self.preparations += 1
                    self._done.wait(max(0.0, next_one - time.monotonic()))
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()


@contextmanager
def _preparing(address: str) -> Iterator[_Preparer]:
    beside = _Preparer(address)
    beside.start()
    try:
        yield beside
    finally:
        beside.close()


def _block(prepared: PreparedModel, network: Network, seconds: float) -> float:
    """Seconds of one execution over a burst."""
    count = 0
    with prepared.open_burst() as burst:
        network.check(burst.execute(network.inputs, timeout=PATIENCE).outputs)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or not count:
            network.check(burst.execute(network.inputs, timeout=PATIENCE).outputs)
            count += 1
    return passed / count
