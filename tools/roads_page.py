"""Writes the table of docs/how_to/roads.md: `python tools/roads_page.py` tries each road with each ability.

A pair that does not work must be refused by an error that names what was asked for; then it becomes a note
below the table. Anything else ends this program.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst import ModelBuilder, OperandType, OperationType
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "how_to" / "roads.md"
BEGIN, END = "<!-- written by tools/roads_page.py -->\n", "<!-- end -->\n"
#: Seconds that anything may take.
PATIENCE: Final = 60.0
#: Elements whose sum takes longer than this many seconds.
_MANY, _SHORT = 4_000_000, 0.0005

_F32: Final = OperandType.TENSOR_FLOAT32
Arrays = Sequence[Any]
Call = Callable[..., Any]


@dataclass(frozen=True)
class State:
    """The sum of all inputs, which is an output and the next input."""

    name: str = "sum"
    input_index: int = 1
    output_index: int = 1
    initial: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(2, np.float32))


def adding(dimensions: tuple[int, ...] = (2,)) -> nnburst.Model:
    """Y = a + b."""
    builder = ModelBuilder()
    a, b = builder.input(_F32, dimensions), builder.input(_F32, dimensions)
    y = builder.output(_F32, dimensions)
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [y])
    return builder.build()


#: Options of `open_burst`; those of a request are given where it is bound, but for the timeout.
_OPENING: Final = ("states", "recover", "max_in_flight")


def _opened(model: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - of either kind
    return model.open_burst(**{name: given.pop(name) for name in _OPENING if name in given})


def _execute(model: Any, inputs: Arrays, **given: Any) -> Any:  # noqa: ANN401 - as above
    return model.execute(inputs, **given)


def _execute_async(model: Any, inputs: Arrays, **given: Any) -> Any:  # noqa: ANN401 - as above
    async def wait() -> Any:  # noqa: ANN401 - as above
        return await model.execute_async(inputs, **given)

    return asyncio.run(wait())


def _burst_execute(model: Any, inputs: Arrays, **given: Any) -> Any:  # noqa: ANN401 - as above
    with _opened(model, given) as burst:
        return burst.execute(inputs, **given)


def _function(model: Any, inputs: Arrays, **given: Any) -> Any:  # noqa: ANN401 - as above
    with _opened(model, given) as burst:
        return burst.function(inputs, **given)(*inputs)


def _bound(run: Callable[[Any, float], Any]) -> Call:
    """A road over a bound request: arrays outside of pools are copied to places of its own."""

    def road(model: Any, inputs: Arrays, **given: Any) -> Any:  # noqa: ANN401 - as above
        timeout = given.pop("timeout", PATIENCE)
        with _opened(model, given) as burst:
            places = inputs
            if "outputs" not in given and all(isinstance(each, np.ndarray) for each in inputs):
                room = max([64, *(each.nbytes for each in inputs)])
                pool = nnburst.Memory(room * len(inputs))
                places = [
                    pool.array(each.dtype, each.shape, room * at) for at, each in enumerate(inputs)
                ]
                for place, value in zip(places, inputs, strict=True):
                    place[...] = value
            rooms = [None if p.known else 64 for p in burst.outputs]
            return run(burst.bind(places, **given, output_bytes=rooms), timeout)

    return road


def _run(bound: Any, timeout: float) -> Any:  # noqa: ANN401 - as above
    return bound.run(timeout)


def _run_async(bound: Any, timeout: float) -> Any:  # noqa: ANN401 - as above
    return asyncio.run(bound.run_async(timeout))


def _submit(bound: Any, timeout: float) -> Any:  # noqa: ANN401 - as above
    return bound.submit(timeout).result(timeout)


#: Ways to execute once, of a prepared model and of a compiled one.
WAYS: Final[dict[str, Call]] = {
    "model.execute": _execute,
    "model.execute_async": _execute_async,
    "burst.execute": _burst_execute,
    "burst.function": _function,
    "bound.run": _bound(_run),
    "bound.run_async": _bound(_run_async),
    "bound.submit": _bound(_submit),
}


def summing() -> nnburst.Model:
    """Y = a + b, twice: the second one is the state."""
    builder = ModelBuilder()
    a, b = builder.input(_F32, (2,)), builder.input(_F32, (2,))
    for y in (builder.output(_F32, (2,)), builder.output(_F32, (2,))):
        builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [y])
    return builder.build()


class Stack(NamedTuple):
    """The executor and the driver behind the roads.

    Attributes:
        name: of it.
        prepare: makes what executes a model, which the caller closes.
        device: the driver, which is started again when it has died.
    """

    name: str
    prepare: Callable[[nnburst.Model], Any]
    device: nnburst.Device


def _first(result: Any) -> Any:  # noqa: ANN401 - as above
    """The first output; a function returns its outputs alone."""
    return result[0] if isinstance(result, tuple) else result.outputs[0]


def _has(result: Any, wanted: Sequence[float]) -> None:  # noqa: ANN401 - as above
    assert _first(result).tolist() == list(wanted), (result, wanted)


def _timeout(stack: Stack, call: Call) -> None:
    large = np.ones(_MANY, np.float32)
    with stack.prepare(adding((_MANY,))) as model:
        try:
            call(model, [large, large], timeout=_SHORT)
        except nnburst.MissedDeadline:
            return
    raise AssertionError(f"{_MANY} sums took less than {_SHORT} s")


def _states(stack: Stack, call: Call) -> None:
    with stack.prepare(summing()) as model:
        _has(call(model, [A], states=[State()]), A)


def _recovers(stack: Stack, call: Call) -> None:
    noticed = threading.Event()
    with stack.prepare(adding()) as model:
        stack.device.on_death(noticed.set)
        os.kill(stack.device.pid, signal.SIGKILL)
        assert noticed.wait(PATIENCE)
        _has(call(model, [A, B]), A + B)


def _measures(stack: Stack, call: Call) -> None:
    with stack.prepare(adding()) as model:
        assert call(model, [A, B], measure=True).timing.measured


def _in_place(stack: Stack, call: Call) -> None:
    pool = nnburst.Memory(192)
    a, b, y = (pool.array(np.float32, (2,), 64 * at) for at in range(3))
    a[...], b[...] = A, B
    with stack.prepare(adding()) as model:
        result = call(model, [a, b], outputs=[y])
        _has(result, A + B)
        assert np.shares_memory(_first(result), y)


def _open_shapes(stack: Stack, call: Call) -> None:
    with stack.prepare(adding((0,))) as model:
        for count in (3, 2):
            ones = np.ones(count, np.float32)
            _has(call(model, [ones, ones]), 2 * ones)


def _buffers(stack: Stack, call: Call) -> None:
    with (
        stack.device.prepare(adding()) as prepared,
        stack.prepare(adding()) as model,
        stack.device.allocate_buffer(inputs=[(prepared, 0)]) as buffer,
    ):
        buffer.copy_from(A)
        owner = prepared if stack.name == DRIVER else model
        _has(call(owner, [buffer, B]), A + B)


def _attributes(stack: Stack, call: Call) -> None:
    with stack.prepare(adding()) as model:
        _has(call(model, [A, B], attributes=[ExtensionAttribute("com.example", 1)]), A + B)


class Ability(NamedTuple):
    """An ability that a road has or refuses.

    Attributes:
        trial: raises unless it can.
        word: what a refusal must name.
    """

    trial: Callable[[Stack, Call], None]
    word: str


ABILITIES: Final = {
    "timeout": Ability(_timeout, "timeout"),
    "states=": Ability(_states, "states"),
    "goes on after a death": Ability(_recovers, "recover"),
    "measure=": Ability(_measures, "measure"),
    "arrays in place": Ability(_in_place, "outputs"),
    "open shapes": Ability(_open_shapes, "shape"),
    "buffers": Ability(_buffers, "buffer"),
    "attributes=": Ability(_attributes, "attributes"),
}
A, B = np.float32([1, 2]), np.float32([10, 20])
DRIVER, PLAN = "prepared", "compiled"


@contextmanager
def stacks() -> Iterator[list[Stack]]:
    """A driver that is made again, and a plan on one."""
    with ExitStack() as stack:
        device = stack.enter_context(nnburst.launch("reference", recover=True))
        driver = DriverDevice(lambda: nnburst.launch("reference"), name="reference")
        manager = stack.enter_context(Manager([driver]))

        def compiled(model: nnburst.Model) -> nnburst.CompiledModel:
            return nnburst.compile(model, ["reference"], manager=manager)

        yield [Stack(DRIVER, device.prepare, device), Stack(PLAN, compiled, driver._driver)]


def tried(stack: Stack, call: Call, ability: Ability) -> str:
    """Empty if the road can do it; else the refusal, which names it.

    Raises:
        Exception: it can do neither.
    """
    try:
        ability.trial(stack, call)
    except (nnburst.InvalidArgument, TypeError) as error:
        if ability.word not in str(error).lower():
            raise
        return str(error)
    return ""


def table() -> str:
    """A row for each road, a column for each ability, and a note for each kind of refusal."""
    notes: dict[str, int] = {}
    lines = [f"| road | {' | '.join(ABILITIES)} |", f"|---|{'---|' * len(ABILITIES)}"]
    with stacks() as both:
        for stack in both:
            for way, call in WAYS.items():
                road = f"`{way.replace('model', stack.name)}`"
                if not way.startswith("model"):
                    road += f" of a {stack.name} model"
                cells = []
                for name, ability in ABILITIES.items():
                    refusal = _REPEATED.sub("", tried(stack, call, ability))
                    number = notes.setdefault(refusal, len(notes) + 1) if refusal else 0
                    print(f"{road} {name}: {refusal or 'yes'}", file=sys.stderr)
                    cells.append(f"no ({number})" if refusal else "yes")
                lines.append(f"| {road} | {' | '.join(cells)} |")
    numbered = [f"{number}. `{text}`" for text, number in notes.items()]
    return "\n".join([*lines, "", *numbered, ""])


#: The class before a method in Python's own messages.
_REPEATED: Final = re.compile(r"^\w+\.")


def page(text: str) -> str:
    """The page with the table as it is found now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
