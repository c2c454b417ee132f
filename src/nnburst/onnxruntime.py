"""nnburst as a plugin execution provider of onnxruntime: where its library is, and the name of the provider.

onnxruntime loads the library by its path; importing this imports nothing (docs/onnxruntime_provider.md).
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from nnburst.capi.installed import PROVIDER_LIBRARY
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.utils import import_extra

_NAME: Final = "NnburstExecutionProvider"
#: What onnxruntime calls the library in this process.
_REGISTERED: Final = "nnburst"
_registering = threading.Lock()


def _unlock_in_child() -> None:
    """Give a forked child a lock of its own: another thread may have been registering the library."""
    global _registering
    _registering = threading.Lock()


os.register_at_fork(after_in_child=_unlock_in_child)


def get_library_path() -> str:
    """Path of the library, for `onnxruntime.register_execution_provider_library`.

    Raises:
        DeviceUnavailable: this nnburst was built without it.
    """
    if not PROVIDER_LIBRARY.is_file():
        raise DeviceUnavailable(
            f"{PROVIDER_LIBRARY}: the file does not exist: this nnburst was built without the provider"
        )
    return str(PROVIDER_LIBRARY)


def get_ep_name() -> str:
    """The provider's name, which its devices have as `ep_name`."""
    return _NAME


def add_provider(
    options: Any,  # noqa: ANN401 - the engine's class
    *,
    device: str | None = None,
    executor: str | None = None,
    num_threads: int | None = None,
    timeout_ms: int | None = None,
) -> None:
    """Have sessions that are made with these `onnxruntime.SessionOptions` run on a driver.

    The first call in a process registers the library with onnxruntime, for good. Thread-safe.

    Args:
        options: of sessions, from onnxruntime 1.23 on.
        device: name or socket of a service that computes; a driver of each session's own unless given.
        executor: that such a driver is started with; `onnxruntime` unless given.
        num_threads: that an execution may use; the driver decides unless given, or with 0.
        timeout_ms: within which a driver must have answered; 60000 unless given.

    Raises:
        ModuleNotFoundError: there is no package `onnxruntime` (extra `onnxruntime`).
        DeviceUnavailable: this nnburst was built without the library, or onnxruntime has no plugins.
    """
    given = {
        "device": device,
        "executor": executor,
        "num_threads": num_threads,
        "timeout_ms": timeout_ms,
    }
    engine = import_extra("onnxruntime", "add_provider", "onnxruntime", "onnxruntime")
    if not hasattr(engine, "register_execution_provider_library"):
        raise DeviceUnavailable(
            f"onnxruntime {engine.__version__} has no plugin execution providers, expected 1.23 or newer"
        )
    with _registering:
        if not _devices(engine):
            engine.register_execution_provider_library(_REGISTERED, get_library_path())
    options.add_provider_for_devices(
        _devices(engine), {name: str(value) for name, value in given.items() if value is not None}
    )


def _devices(engine: Any) -> list[Any]:  # noqa: ANN401
    return [device for device in engine.get_ep_devices() if device.ep_name == _NAME]
