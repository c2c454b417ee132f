"""Models and results cross processes by pickle. Handles refuse, and name what to do instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import nnburst
import nnburst.hal
from nnburst import OperandType, OperationType
from nnburst.client.hal import create_reusable_execution
from shared_drivers import connect_to

X = np.arange(4, dtype=np.float32).reshape(1, 4)


def model() -> nnburst.Model:
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 4))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 4))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


@pytest.fixture(scope="module")
def handles() -> Iterator[dict[str, Any]]:
    """One of each handle."""
    with ExitStack() as stack:
        device = stack.enter_context(connect_to("reference"))
        prepared = stack.enter_context(device.prepare(model()))
        burst = stack.enter_context(prepared.open_burst())
        compiled = stack.enter_context(nnburst.compile(model(), devices=["nnapi-reference"]))
        compiled_burst = stack.enter_context(compiled.open_burst())
        recovering = stack.enter_context(connect_to("null", recover=True))
        recovering_burst = stack.enter_context(recovering.prepare(model()).open_burst())
        bound = burst.bind()
        yield {
            "connect": device,
            "prepare": prepared,
            "open one": burst,
            "bind one": bound,
            "from_fd": stack.enter_context(device.allocate(64)),
            "compile it": compiled,
            "open": compiled_burst,
            "bind": compiled_burst.bind(),
            "arrays and results": recovering_burst,
            "results can be": recovering_burst.bind(),
            "copied": burst.function(),
            "result": prepared.execute_async([X]),
            "make one": create_reusable_execution(prepared, [X]),
            "make": nnburst.hal.SyncFence.create()[0],
        }


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_handle_that_is_pickled_or_copied_names_what_to_do_instead(
    handles: dict[str, Any], use: Any
) -> None:
    for instead, handle in handles.items():
        with pytest.raises(TypeError, match=f"^{type(handle).__name__} belongs .*{instead}"):
            use(handle)


def test_models_and_results_cross_processes(handles: dict[str, Any]) -> None:
    result = handles["prepare"].execute([X])
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.outputs[0], X + X)
    with handles["connect"].prepare(pickle.loads(pickle.dumps(model()))) as prepared:
        assert np.array_equal(prepared.execute([X]).outputs[0], X + X)
