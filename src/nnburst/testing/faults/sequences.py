"""A client with several sequences of one decoder, whose states stay in the driver.

It is an activity like those of `activities`, for drivers that execute whole ONNX graphs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module
from itertools import cycle
from typing import Any, Final

import numpy as np

from nnburst.client.burst.interface import Burst
from nnburst.client.device import Device
from nnburst.importer.load import load
from nnburst.testing.faults.activities import WrongResult
from nnburst.testing.models.transformers import TransformerSize, decoder, decoder_states

#: Sequences of a client at once.
SEQUENCES: Final = 8
_SIZE: Final = TransformerSize(2, 64, 2, 97, 64)
_TOKENS: Final = 12
_LONGEST_PROMPT: Final = 5


def decode_in_slots(device: Device) -> Iterator[None]:
    """Takes a token of one of `SEQUENCES` sequences, in turn, and compares it with that of one alone.

    What is expected comes from the engine in this process. A sequence that has all its tokens begins anew,
    in its slot or in another one. Needs onnxruntime.
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
    """The engine in this process, with one sequence at a time."""

    def __init__(self, content: bytes, states: dict[str, str]) -> None:
        engine = import_module("onnxruntime")
        options = engine.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # it warns of each copy of a state
        self._session = engine.InferenceSession(content, options, ["CPUExecutionProvider"])
        self._states = states

    def tokens(self, prompt: list[int]) -> list[int]:
        """The likeliest tokens behind a prompt, `_TOKENS` of them."""
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
    """One sequence in a slot, and the tokens that it must have."""

    def __init__(self, burst: Burst, prompt: list[int], expected: list[int]) -> None:
        self._burst = burst
        self._prompt = prompt
        self._expected = expected
        self._slot = burst.slot()
        self._found: list[int] = []

    @property
    def is_complete(self) -> bool:
        """Whether it has all its tokens."""
        return len(self._found) == len(self._expected)

    def step(self) -> None:
        """Take its next token.

        Raises:
            WrongResult: a sequence alone has another one.
        """
        ids = self._found[-1:] or self._prompt
        self._found.append(int(self._slot.execute([np.array([ids])]).outputs[0][0]))
        count = len(self._found)
        if self._found != self._expected[:count]:
            raise WrongResult(f"{self._found}, alone {self._expected[:count]}, for {self._prompt}")

    def begin_anew(self, *, in_its_slot: bool) -> None:
        """Forget all its tokens."""
        self._found = []
        if in_its_slot:
            self._slot.reset()
        else:
            self._slot.close()
            self._slot = self._burst.slot()
