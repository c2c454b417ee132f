"""Finding an executor by name: built in, by entry point, or as `module:attribute`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, cast

from nnburst.executor.base import Executor
from nnburst.executor.built_in import BUILT_IN, MODULES
from nnburst.hal.errors import DeviceUnavailable

ExecutorFactory = Callable[[], Executor]

GROUP: Final = "nnburst.executors"


def find_executor(name: str) -> ExecutorFactory:
    """What makes the executor called `name`.

    Args:
        name: of a built-in executor, of an entry point, or `module:attribute`.

    Raises:
        DeviceUnavailable: it is unknown, or cannot be imported.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    target = name if ":" in name else _entry_point(name)
    module, _, attribute = target.partition(":")
    try:
        return cast("ExecutorFactory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise DeviceUnavailable(f"executor: {name!r} cannot be imported: {error}") from error


def import_executor(name: str) -> None:
    """Import what executor `name` needs, and make nothing: what is forked later shares the modules.

    Raises:
        DeviceUnavailable: it is unknown, or cannot be imported.
    """
    find_executor(name)
    try:
        for module in MODULES.get(name, ()):
            importlib.import_module(module)
    except ImportError as error:
        raise DeviceUnavailable(f"executor: {name!r} cannot be imported: {error}") from error


def _entry_point(name: str) -> str:
    from importlib.metadata import entry_points  # 10 ms that built-in executors do not need

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted({*BUILT_IN, *found}))
        raise DeviceUnavailable(f"executor: {name!r} is not known; known are {known}")
    return found[name]
