"""Fixtures for interpreters with and without the delegate, and for a service that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from client.service import Service
from nnburst import litert
from nnburst.capi import installed

Array = npt.NDArray[Any]
#: Makes an interpreter of a file's bytes, or of its path, whose nodes run on the delegate.
MakeInterpreter = Callable[..., Any]


@pytest.fixture(scope="session")
def engine() -> Any:
    """The module with LiteRT's interpreter; skips without it, or if this nnburst has no delegate."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")
    if not installed.DELEGATE_LIBRARY.is_file():
        pytest.skip("this nnburst was built without the delegate")
    return import_module("ai_edge_litert.interpreter")


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A service that computes whole files; tests must not kill its processes."""
    with Service(executor="litert") as service:
        yield service


def opened(engine: Any, network: bytes | Path, **given: Any) -> Any:
    """LiteRT's own interpreter of a network, on one thread."""
    source = (
        {"model_content": network} if isinstance(network, bytes) else {"model_path": str(network)}
    )
    return engine.Interpreter(**source, num_threads=1, **given)


@pytest.fixture
def interpreter(engine: Any, service: Service) -> MakeInterpreter:
    """Makes interpreters with a delegate, whose options are keyword arguments."""

    def make(network: bytes | Path, **options: Any) -> Any:
        if not options.keys() & {"device", "executor"}:
            options["device"] = service.address
        delegate = litert.load_delegate(num_threads=1, **options)
        return opened(engine, network, experimental_delegates=[delegate])

    return make


def some_inputs(interpreter: Any, seed: int) -> list[Array]:
    """Random inputs, small and not below 0, so that integers are valid indices, too."""
    random = np.random.default_rng(seed)
    return [
        (
            random.integers(0, 2, d["shape"])
            + 0.5 * random.random(d["shape"]) * (d["dtype"] == np.float32)
        ).astype(d["dtype"])
        for d in interpreter.get_input_details()
    ]


def results(interpreter: Any, values: list[Array]) -> list[tuple[tuple[int, ...], bytes]]:
    """Extents and bytes of a run's outputs."""
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    found = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    return [(array.shape, array.tobytes()) for array in found]


def operators(interpreter: Any) -> list[str]:
    """Names of the operators that the interpreter has by now: the network's, and delegates'."""
    return [each["op_name"] for each in interpreter._get_ops_details()]
