"""Measures a decoder whose keys and values stay in the driver, on one burst and in process.

    python -m nnburst.bench.network.decoding [--forms FORM ...] [--contexts N ...] [--tokens N] [--small]

The loop in process keeps the states by IoBinding, written over where the operator permits it; another one
passes them on by numpy and `run()`. Each loop first reads a prompt that leaves room for the measured tokens.
Burst and IoBinding take turns of some tokens, on one thread each, and must give the same tokens. It needs the
extra `onnxruntime`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter_ns
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.bench.network.networks import onnx_session
from nnburst.testing.models.transformers import (
    DECODER,
    FORMS,
    SMALL_DECODER,
    Form,
    TransformerSize,
    decoder,
    decoder_states,
)

Array = npt.NDArray[Any]
_CONTEXTS: Final = (128, 1024, 8192)
#: Numbers of tokens: of a turn, and of the prompt that are read at once.
_TURN: Final = 8
_CHUNK: Final = 128


class TokenTimes(msgspec.Struct, frozen=True):
    """The measurements of one form at one context, times in µs for a token.

    Attributes:
        form: the decoder's form.
        context: number of tokens after the last one.
        burst_us: median on the burst.
        engine_us: median of the loop in process by IoBinding.
        ratio: median over the pairs of turns of burst ÷ IoBinding.
        more_us: median over the pairs of turns of burst − IoBinding.
        numpy_us: median of the loop in process by numpy and `run()`.
    """

    form: Form
    context: int
    burst_us: float
    engine_us: float
    ratio: float
    more_us: float
    numpy_us: float


class _Loop(Protocol):
    """Continues one sequence."""

    def step(self, token: int) -> int:
        """Read one token; return the likeliest next one."""


class _OnBurst:
    """States in the driver, and a request that is bound once."""

    def __init__(self, sequence: nnburst.Burst) -> None:
        self._sequence = sequence
        self._bound = sequence.bind([nnburst.Memory(8).array(np.int64, (1, 1))])

    def read(self, ids: Array) -> int:
        return int(self._sequence.execute([ids]).outputs[0][0])

    def step(self, token: int) -> int:
        self._bound.inputs[0][...] = token
        return int(self._bound.run(timeout=60.0).outputs[0][0])


class _ByBinding:
    """States that stay in the engine's memory: those of fixed extents are written over."""

    def __init__(self, session: Any, form: Form, size: TransformerSize) -> None:  # noqa: ANN401
        self._session, self._states = session, decoder_states(form, size)
        self._ort = import_module("onnxruntime")
        self._binding = session.io_binding()
        self._logits = np.zeros((1, size.words), np.float32)
        self._ids = np.zeros((1, 1), np.int64)
        place = self._logits.ctypes.data
        self._binding.bind_output("logits", "cpu", 0, np.float32, self._logits.shape, place)
        self._values: dict[str, Any] = {}
        for info in session.get_inputs():
            if info.name in self._states:
                shape = [extent if isinstance(extent, int) else 0 for extent in info.shape]
                dtype = np.int64 if info.type == "tensor(int64)" else np.float32
                self._bind(
                    info.name, self._ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))
                )
        self._turning = [n for n in self._states if form == "concat" or n == "position"]
        fixed = [n for n in self._states if n not in self._turning]
        for name in fixed:
            self._binding.bind_ortvalue_output(self._states[name], self._values[name])
        self._first_made = 1 + len(fixed)  # outputs are in the order in which they were bound first

    def _bind(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._values[name] = value
        self._binding.bind_ortvalue_input(name, value)

    def _bind_ids(self, ids: Array) -> None:
        self._binding.bind_input("ids", "cpu", 0, np.int64, ids.shape, ids.ctypes.data)

    def _run(self) -> int:
        for name in self._turning:
            self._binding.bind_output(self._states[name], "cpu")
        self._session.run_with_iobinding(self._binding)
        made = self._binding.get_outputs()[self._first_made :]
        for name, value in zip(self._turning, made, strict=True):
            self._bind(name, value)
        return int(self._logits.argmax())

    def arrays(self) -> dict[str, Array]:
        """Copies of the states."""
        return {name: value.numpy().copy() for name, value in self._values.items()}

    def read(self, ids: Array) -> int:
        ids = np.ascontiguousarray(ids)
        self._bind_ids(ids)
        found = self._run()
        self._bind_ids(self._ids)
        return found

    def step(self, token: int) -> int:
        self._ids[...] = token
        return self._run()


class _ByNumpy:
    """States that are passed on as arrays."""

    def __init__(self, session: Any, states: dict[str, str], values: dict[str, Array]) -> None:  # noqa: ANN401
        self._session, self._states, self._values = session, states, values
        self._names = ["logits", *states.values()]

    def step(self, token: int) -> int:
        given = {"ids": np.array([[token]]), **self._values}
        logits, *after = self._session.run(self._names, given)
        self._values = dict(zip(self._states, after, strict=True))
        return int(logits.argmax())


@contextmanager
def _on_burst(content: bytes, states: dict[str, str]) -> Iterator[_OnBurst]:
    network = nnburst.load(content, as_graph=True, states=states, resident=True, largest=["logits"])
    with (
        nnburst.launch("onnxruntime") as device,
        device.prepare(network) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as sequence,
    ):
        yield _OnBurst(sequence)


def measure(form: Form, context: int, tokens: int, size: TransformerSize = DECODER) -> TokenTimes:
    """Measure the last `tokens` of a sequence that then has `context` tokens.

    Raises:
        ValueError: tokens differ.
    """
    size = msgspec.structs.replace(size, context=context)
    content, states = decoder(form, size), decoder_states(form, size)
    session = onnx_session(content)
    turns = tokens // _TURN // 2 * 2  # each side begins half of them
    after_prompt = context - turns * _TURN
    prompt = np.random.default_rng(0).integers(0, size.words, (1, after_prompt))
    with _on_burst(content, states) as burst:
        engine = _ByBinding(session, form, size)
        loops: tuple[_OnBurst | _ByBinding, ...] = (burst, engine)
        last = [0, 0]
        for at in range(0, after_prompt, _CHUNK):
            last = [loop.read(prompt[:, at : at + _CHUNK]) for loop in loops]
        by_numpy = _ByNumpy(session, states, engine.arrays())
        begun_with = last[1]
        said: tuple[list[int], list[int]] = ([], [])
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(turns):
            for side in (0, 1) if turn % 2 else (1, 0):
                last[side], took = _go_on(loops[side], last[side], _TURN, said[side])
                times[side].append(took)
    again: list[int] = []
    _, numpy_us = _go_on(by_numpy, begun_with, _TURN, again)
    if said[0] != said[1] or again != said[1][:_TURN]:
        raise ValueError(f"{form}: tokens differ: {said}, {again}")
    pairs = list(zip(*times, strict=True))
    return TokenTimes(
        form=form,
        context=context,
        burst_us=statistics.median(times[0]),
        engine_us=statistics.median(times[1]),
        ratio=statistics.median(ours / theirs for ours, theirs in pairs),
        more_us=statistics.median(ours - theirs for ours, theirs in pairs),
        numpy_us=numpy_us,
    )


def _go_on(loop: _Loop, token: int, count: int, said: list[int]) -> tuple[int, float]:
    """Continue for some tokens, which are added to `said`: the last one, and the median time in µs."""
    times = []
    for _ in range(count):
        began = perf_counter_ns()
        token = loop.step(token)
        times.append(perf_counter_ns() - began)
        said.append(token)
    return token, statistics.median(times) / 1e3


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="a decoder whose state stays in the driver")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--contexts", nargs="+", type=int, default=_CONTEXTS, metavar="N")
    parser.add_argument("--tokens", type=int, default=96, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--small", action="store_true", help="a decoder of less than 100 µs a token"
    )
    args = parser.parse_args(words)
    size = SMALL_DECODER if args.small else DECODER
    for form in args.forms:
        for context in args.contexts:
            found = measure(form, context, args.tokens, size)
            sys.stdout.write(
                f"{form} at {context}: burst {found.burst_us:.0f} µs a token, IoBinding"
                f" {found.engine_us:.0f}; {found.ratio:.3f} in pairs, {found.more_us:+.1f} µs;"
                f" numpy {found.numpy_us / found.burst_us:.1f} of the burst\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
