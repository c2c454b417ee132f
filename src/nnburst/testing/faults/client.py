"""Runs one activity as a client process until it is killed, and times its rounds.

The process prints a line of JSON once its activity runs. `connect` connects repeatedly; `stand_by` runs
bursts and executes until its standard input ends, and prints its results so far for each line of input and at
the end (`stand_by:NAME` does the same with one of `ACTIVITIES`, or with `decode_in_slots`). All other
activities, `ACTIVITIES` and `STUCK`, run until the process is killed. The address `launch` starts a driver.

`decode_in_slots` needs a driver that executes whole ONNX graphs, in which several sequences of one decoder
keep their states.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import cycle
from typing import Any, Final

import numpy as np

import nnburst
from nnburst.client.burst.interface import Burst
from nnburst.client.device import Device
from nnburst.importer.load import load
from nnburst.testing.faults.activities import ACTIVITIES, STUCK, WrongResult, burst_runs, execute
from nnburst.testing.models.transformers import TransformerSize, decoder, decoder_states

#: Durations that are kept, enough for percentiles like those of all durations.
_KEPT: Final = 16384
#: Seconds between the executions of a `stand_by` client, which leaves the processor to others.
_PAUSE: Final = 0.001
#: Number of sequences of a client at once.
SEQUENCES: Final = 8
#: Size of the decoder.
_SIZE: Final = TransformerSize(2, 64, 2, 97, 64)
#: Number of tokens that each sequence generates.
_TOKENS: Final = 12
_LONGEST_PROMPT: Final = 5


def decode_in_slots(device: Device) -> Iterator[None]:
    """Generates tokens of `SEQUENCES` sequences in turn, and compares them with each sequence run alone.

    The engine in this process gives the expected tokens. A complete sequence begins again, in its slot or in
    another one. Needs onnxruntime.
    """
    chance = random.Random()  # noqa: S311 - nothing secret
    content, states = decoder("scatter", _SIZE), decoder_states("scatter", _SIZE)
    alone = _Alone(content, states)
    network = load(content, as_graph=True, states=states, resident=True, largest=["logits"])
    burst = device.prepare(network).open_burst()
    sequences = []
    for _ in range(SEQUENCES):
        length = chance.randint(1, _LONGEST_PROMPT)
        prompt = [chance.randrange(_SIZE.words) for _ in range(length)]
        sequences.append(_Sequence(burst, prompt, alone.tokens(prompt)))
    for sequence in cycle(sequences):
        yield
        sequence.step()
        if sequence.is_complete:
            sequence.begin_anew(in_its_slot=chance.random() < 0.5)


class _Alone:
    """Runs one sequence at a time by the engine in this process."""

    def __init__(self, content: bytes, states: dict[str, str]) -> None:
        engine = import_module("onnxruntime")
        options = engine.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # else the engine warns about each copy of a state
        self._session = engine.InferenceSession(content, options, ["CPUExecutionProvider"])
        self._states = states

    def tokens(self, prompt: list[int]) -> list[int]:
        """The `_TOKENS` most likely tokens after a prompt."""
        inputs = {info.name: info for info in self._session.get_inputs()}
        outputs = [info.name for info in self._session.get_outputs()]
        values: dict[str, Any] = {
            name: np.zeros(
                inputs[name].shape, "i8" if inputs[name].type == "tensor(int64)" else "f4"
            )
            for name in self._states
        }
        ids, found = prompt, []
        for _ in range(_TOKENS):
            results = self._session.run(None, {"ids": np.array([ids]), **values})
            by_name = dict(zip(outputs, results, strict=True))
            values = {before: by_name[after] for before, after in self._states.items()}
            found.append(int(by_name["logits"].argmax()))
            ids = found[-1:]
        return found


class _Sequence:
    """One sequence in a slot, and its expected tokens."""

    def __init__(self, burst: Burst, prompt: list[int], expected: list[int]) -> None:
        self._burst = burst
        self._prompt = prompt
        self._expected = expected
        self._slot = burst.slot()
        self._found: list[int] = []

    @property
    def is_complete(self) -> bool:
        """Whether the sequence has all its tokens."""
        return len(self._found) == len(self._expected)

    def step(self) -> None:
        """Generate the next token.

        Raises:
            WrongResult: the token differs from the expected one.
        """
        ids = self._found[-1:] or self._prompt
        self._found.append(int(self._slot.execute([np.array([ids])]).outputs[0][0]))
        count = len(self._found)
        if self._found != self._expected[:count]:
            raise WrongResult(f"{self._found}, alone {self._expected[:count]}, for {self._prompt}")

    def begin_anew(self, *, in_its_slot: bool) -> None:
        """Begin the sequence again, without tokens."""
        self._found = []
        if in_its_slot:
            self._slot.reset()
        else:
            self._slot.close()
            self._slot = self._burst.slot()


class Latencies:
    """A uniform random sample of durations. One thread at a time.

    Every duration is equally likely to be in the sample, so its percentiles are those of the whole run. A
    list of all durations would grow for hours in a process that is checked for growth.
    """

    def __init__(self) -> None:
        """Allocate all memory that the sample will ever need."""
        self._kept = np.ones(_KEPT, np.int64)
        self._chance = random.Random()  # noqa: S311 - nothing secret
        #: Number of durations so far.
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        """Add the duration of a round."""
        at = self.count if self.count < _KEPT else self._chance.randrange(self.count + 1)
        if at < _KEPT:
            self._kept[at] = nanoseconds
        self.count += 1

    def microseconds(self, *percentiles: float) -> list[float]:
        """The durations at `percentiles`; 0 if there was no round."""
        if not self.count:
            return [0.0 for _ in percentiles]
        found = np.percentile(self._kept[: self.count], percentiles) / 1000
        return [float(each) for each in found]


def main(address: str, name: str) -> None:
    """Connect and run activity `name`."""
    if name == "connect":
        _connect(address)
    if name in STUCK:
        _go_on(STUCK[name](address), worker=0)
    with nnburst.launch("reference") if address == "launch" else nnburst.connect(address) as device:
        if name.startswith("stand_by"):
            _stand_by(device, name.partition(":")[2])
            return
        _go_on(ACTIVITIES[name](device), device.pid)


def _go_on(steps: Iterator[None], worker: int) -> None:
    next(steps)
    _say({"pid": os.getpid(), "worker": worker})
    for _ in steps:
        pass


def _connect(address: str) -> None:
    _say({"pid": os.getpid(), "worker": 0})
    while True:
        nnburst.connect(address).close()


def _stand_by(device: nnburst.Device, name: str) -> None:
    known = {**ACTIVITIES, "decode_in_slots": decode_in_slots}
    activities = [known[name](device)] if name else [burst_runs(device), execute(device)]
    for steps in activities:
        next(steps)
    _say({"pid": os.getpid(), "worker": device.pid})
    while True:
        latencies = Latencies()
        error = _repeat(activities, latencies)
        told = sys.stdin.readline() if not error else ""
        p50, p99 = latencies.microseconds(50, 99)
        _say({"rounds": latencies.count, "error": error, "median_us": p50, "p99_us": p99})
        if not told:
            return


def _repeat(activities: Sequence[Iterator[None]], latencies: Latencies) -> str:
    """Repeat the activities until standard input has data; the error that ended them earlier, if any."""
    while not select.select([sys.stdin], [], [], _PAUSE)[0]:
        began = time.perf_counter_ns()
        try:
            for steps in activities:
                next(steps)
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        latencies.add(time.perf_counter_ns() - began)
    return ""


def _say(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
