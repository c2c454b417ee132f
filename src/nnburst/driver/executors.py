"""Finds executors by name (built in, entry point, `module:attribute`, path of a library) and makes them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from nnburst.control.service import text_of
from nnburst.executor.base import Executor
from nnburst.executor.built_in import BEGINNINGS, BUILT_IN, MODULES
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.utils import OPTIONED, executor_library

logger = logging.getLogger(__name__)

ExecutorFactory = Callable[[], Executor]

GROUP: Final = "nnburst.executors"
#: The methods that a driver calls, with the arguments that it passes by position.
_CALLED: Final = {"supported": ("model",), "prepare": ("model", "pools", "options")}
#: Options for executors that take any; set once, before this process forks.
_options: dict[str, str] = {}


def set_options(pairs: Sequence[str]) -> None:
    """Set the options for executors that this process, or a process that it forks, makes.

    Args:
        pairs: each as `key=value`; the last value of a key counts.

    Raises:
        InvalidArgument: one is not of this form.
    """
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidArgument(f"option: {pair!r}, expected key=value")
        _options[key] = value


def find_executor(name: str) -> ExecutorFactory:
    """Find the function or class that makes the executor called `name`.

    Args:
        name: the name of a built-in executor or an entry point, `module:attribute`, or the path of a library.

    Raises:
        DeviceUnavailable: the executor is unknown, or cannot be imported.
    """
    library = executor_library(name)
    if library is not None:
        return lambda: _load(library)
    if "/" in name or name.endswith(".so"):
        raise DeviceUnavailable(f"executor: {name!r} is not the path of a shared library (ELF)")
    if name in OPTIONED:
        return lambda: BUILT_IN[name](_options)
    if name in BUILT_IN:
        return BUILT_IN[name]
    target = name if ":" in name else _entry_point(name)
    module, _, attribute = target.partition(":")
    try:
        return cast("ExecutorFactory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise DeviceUnavailable(f"executor: {name!r} cannot be imported: {error}") from error


def _load(library: Path) -> Executor:
    from nnburst.executor.c_library import CExecutor

    return CExecutor.load(library, _options)


def begin_executor(name: str) -> Callable[[], object]:
    """Begin to load executor `name` while this process imports the rest of a driver.

    Returns:
        A function that waits for it: call it before this process forks or gives up writing files.
    """
    try:
        if name in BEGINNINGS:
            return BEGINNINGS[name]()
    except Exception as error:
        logger.debug("executor %s begins when it is made, which gives the reason: %s", name, error)
    return lambda: None


def import_executor(name: str) -> None:
    """Import the modules of executor `name` without making it, so that forked processes share them.

    Facts that are the same for all processes are determined here, too.

    Raises:
        DeviceUnavailable: it is unknown, or cannot be imported.
    """
    find_executor(name)
    try:
        importlib.import_module("numpy")  # or each worker that comes to need it has its own
        for module in MODULES.get(name, ()):
            importlib.import_module(module)
        begin_executor(name)()
    except ImportError as error:
        raise DeviceUnavailable(f"executor: {name!r} cannot be imported: {error}") from error


def import_engine(name: str) -> None:
    """Import the module of a built-in executor `name`, with all that it imports; does nothing for others."""
    try:
        for module in MODULES.get(name, ())[:1]:
            importlib.import_module(module)
    except Exception as error:
        logger.debug(
            "executor %s is imported when it is made, which gives the reason: %s", name, error
        )


def make_executor(name: str) -> Executor:
    """Make the executor called `name`, and check that it has the methods that a driver calls.

    Raises:
        DeviceUnavailable: it is unknown, or cannot be imported, made or used; the message has the reason.
        NnburstError: the executor's constructor raised it.
        MemoryError: likewise.
    """
    factory = find_executor(name)
    try:
        executor = factory()
    except (NnburstError, MemoryError):
        raise
    except Exception as error:
        logger.exception("executor %s cannot be made", name)
        raise DeviceUnavailable(
            f"executor {name!r} cannot be made: {type(error).__name__}: {text_of(error)}"
        ) from error
    own = getattr(executor, "name", None)
    if not isinstance(own, str) or not own:
        raise DeviceUnavailable(
            f"executor {name!r}: {type(executor).__name__}.name is {own!r}, expected a text"
        )
    for method, arguments in () if name in BUILT_IN else _CALLED.items():
        _check_method(name, executor, method, arguments)
    return executor


def _check_method(name: str, executor: Executor, method: str, arguments: tuple[str, ...]) -> None:
    import inspect  # two milliseconds that built-in executors do not need

    what = f"executor {name!r}: {type(executor).__name__}.{method}"
    found = getattr(executor, method, None)
    wanted = f"{method}({', '.join(arguments)})"
    if not callable(found):
        raise DeviceUnavailable(f"{what} is missing, expected {wanted}")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # a callable of C may have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise DeviceUnavailable(
            f"{what}{signature} cannot be called as {wanted}, by position: {error}"
        ) from None


def _entry_point(name: str) -> str:
    from importlib.metadata import entry_points  # 10 ms that built-in executors do not need

    found = {point.name: point.value for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted({*BUILT_IN, *found}))
        raise DeviceUnavailable(f"executor: {name!r} is not known; known are {known}")
    return found[name]
