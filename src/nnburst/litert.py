"""Finds the external delegate for LiteRT, and loads it into an interpreter.

Importing it imports nothing of LiteRT (docs/litert_delegate.md).
"""

from __future__ import annotations

from typing import Any

from nnburst.capi.installed import DELEGATE_LIBRARY
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.utils import import_extra


def get_library_path() -> str:
    """Path of the library, for `load_delegate` of LiteRT's packages and programs in other languages.

    Raises:
        DeviceUnavailable: this nnburst was built without it.
    """
    if not DELEGATE_LIBRARY.is_file():
        raise DeviceUnavailable(
            f"{DELEGATE_LIBRARY}: the file does not exist: this nnburst was built without the delegate"
        )
    return str(DELEGATE_LIBRARY)


def load_delegate(
    *,
    device: str | None = None,
    executor: str | None = None,
    num_threads: int | None = None,
    timeout_ms: int | None = None,
    fallback: bool = True,
) -> Any:  # noqa: ANN401 - the engine's class
    """A delegate for `ai_edge_litert.interpreter.Interpreter(..., experimental_delegates=[delegate])`.

    Args:
        device: name or socket of a service that computes; a driver of the delegate's own unless given.
        executor: that such a driver is started with; `litert` unless given.
        num_threads: that an execution may use; the driver decides unless given, or with 0.
        timeout_ms: within which a driver must have answered; 60000 unless given.
        fallback: whether LiteRT computes nodes that the driver does not; without it, they are an error of
            the interpreter.

    Returns:
        LiteRT's own object, which each interpreter that has it keeps. Several interpreters may have one, on
        several threads.

    Raises:
        ModuleNotFoundError: there is no package `ai_edge_litert` (extra `litert`).
        DeviceUnavailable: this nnburst was built without the library.
        ValueError: an option makes no sense, or there is no such driver; from LiteRT.
    """
    given = {
        "device": device,
        "executor": executor,
        "num_threads": num_threads,
        "timeout_ms": timeout_ms,
        "fallback": int(fallback),
    }
    options = {name: value for name, value in given.items() if value is not None}
    engine = import_extra("ai_edge_litert.interpreter", "load_delegate", "ai-edge-litert", "litert")
    return engine.load_delegate(get_library_path(), options)
