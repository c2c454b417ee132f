"""Receives the calls of libneuralnetworks.so, and closes all objects before the interpreter ends.

The library has already refused nulls and invalid handles. This module replaces each handle by its object,
passes numbers on as they are, and turns each error into its code, so that no exception reaches C.

A program may go on after its interpreter has ended (`Py_FinalizeEx`, or the end of a Python program). From
then on the library refuses each call. Before that, `shutdown` waits for computations under way, since C may
be using Python's memory, and then closes all objects while Python still works.

If `NNBURST_EXECUTION_COUNTS` names a folder, the file `PID.json` there counts the executions of each device.
A program under test may end suddenly or crash, so the file is written each time that a compilation is freed.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.capi import handlers
from nnburst.capi.functions import FUNCTIONS, Function, Pass
from nnburst.capi.marshalling import HANDLES, Read, reader, store_result, value_reader
from nnburst.capi.native_executions import FAST_PATH, NATIVE_EXECUTIONS
from nnburst.hal.enums import ResultCode
from nnburst.hal.environment import EXECUTION_COUNTS, LOG
from nnburst.hal.errors import BadState, GeneralFailure, InvalidArgument, NnburstError
from nnburst.runtime.argument import Outcome
from nnburst.runtime.devices.manager import close_process_manager
from nnburst.runtime.execution.executable import EXECUTIONS
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.event import Event
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.memory_desc import MemoryDesc
from nnburst.runtime.objects.model import Model

# -- shutdown --------------------------------------------------------------------------------------


logger = logging.getLogger("nnburst.capi")

#: Seconds to wait for calls under way; after it the drivers are ended, and the wait is repeated once.
_GRACE: Final = 5.0


def shutdown(exchange: Any) -> None:  # noqa: ANN401 - a struct nnb_exchange of cffi's
    """Have the library refuse calls, wait for those under way, and close all objects."""
    if not _ended(exchange):
        logger.warning("Python ends while NNAPI computes: the drivers are ended, too")
        close_process_manager()
        if not _ended(exchange):
            logger.error("Python ends while NNAPI computes: its threads may not survive that")
            return
    FAST_PATH.close()
    NATIVE_EXECUTIONS.close()
    HANDLES.close()


def _ended(exchange: Any) -> bool:  # noqa: ANN401 - the same
    """Wait up to `_GRACE` seconds for calls under way; returns whether all have ended."""
    deadline = time.monotonic() + _GRACE
    while exchange.end() or NATIVE_EXECUTIONS.is_in_use:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


# -- counts of executions --------------------------------------------------------------------------


_folder: Final = EXECUTION_COUNTS.read() if EXECUTION_COUNTS.is_set else None


def write_counts() -> None:
    """Write the counts of executions, if a folder for them is set."""
    if _folder is not None:
        path = _folder / f"{os.getpid()}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(EXECUTIONS.as_json()), encoding="utf-8")
        partial.rename(path)


_OP_FAILED: Final = int(ResultCode.OP_FAILED)


def start(address: int, ours: int) -> None:
    """Give the library the functions by which it calls Python.

    Args:
        address: the address of the library's `struct nnb_exchange`.
        ours: whether the library started the interpreter; if so, it sets up the log as well.

    Raises:
        GeneralFailure: the library and the package have different versions.
    """
    exchange = ffi.cast("struct nnb_exchange *", address)
    if exchange.version != lib.NNB_EXCHANGE_VERSION:
        raise GeneralFailure(
            f"libneuralnetworks.so has interface {exchange.version},"
            f" this nnburst {lib.NNB_EXCHANGE_VERSION}"
        )
    if ours:
        _log_as_asked()
    HANDLES.new_handle = exchange.new_handle
    FAST_PATH.exchange = NATIVE_EXECUTIONS.exchange = exchange
    exchange.finish = ffi.addressof(lib, "nnb_capi_finish")
    exchange.adopt = ffi.addressof(lib, "nnb_capi_adopt")
    exchange.adopt_event = ffi.addressof(lib, "nnb_capi_adopt_event")
    exchange.finish_cached = ffi.addressof(lib, "nnb_capi_finish_cached")
    exchange.call = ffi.addressof(lib, "nnb_capi_call")
    weakref.finalize(
        shutdown, int
    ).atexit = False  # makes weakref register its own exit handler, which closes drivers
    atexit.register(shutdown, exchange)  # registered later, so it runs first


def _log_as_asked() -> None:
    """Set up the log: off unless `NNBURST_LOG` names a level, since stderr belongs to the program."""
    warnings.simplefilter("ignore")
    root = logging.getLogger()
    if LOG.is_set:
        logging.basicConfig(format="%(name)s: %(message)s", stream=sys.__stderr__, force=True)
        try:
            root.setLevel(LOG.read())
        except InvalidArgument as error:  # the program runs all the same
            logger.warning("%s; logging from WARNING on", error)
    elif not root.handlers:
        root.addHandler(logging.NullHandler())


class _Handler:
    """Executes one function of the interface."""

    __slots__ = ("_carry_out", "_readers", "_room", "name")

    def __init__(self, function: Function) -> None:
        """Find the handler or the row that executes the function, and read its arguments' types."""
        self.name = function.name
        by_hand: Callable[..., Any] | None = getattr(handlers, function.key, None)
        read = reader if by_hand is not None else value_reader
        self._room = -1
        self._readers: list[tuple[Read, int]] = []
        for index, argument in enumerate(function.arguments):
            if argument.passing is Pass.NEW_HANDLE:
                self._room = index
            elif function.is_free:
                self._readers.append((lambda words, index: words[index], index))
            else:
                self._readers.append((read(function, argument), index))
        self._carry_out = _free if function.is_free else by_hand or Row(function).as_function()

    def __call__(self, words: Any) -> None:  # noqa: ANN401 - a pointer of cffi's
        """Execute the function; an object that it makes is stored under the handle chosen by the library."""
        made = self._carry_out(*[read(words, index) for read, index in self._readers])
        if self._room >= 0:
            HANDLES[words[self._room]] = made
        elif self.name == "ANeuralNetworksCompilation_free":
            write_counts()


#: `Class.method(arguments)`, `method(arguments)`, `Class(arguments)`, `attribute = argument` or `attribute`.
_METHOD: Final = re.compile(r"(?:([A-Z]\w+)\.?)?([a-z]\w*)?(?:\((.*)\)| = (\w+))?")
_CLASSES: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (Compilation, Event, Memory, MemoryDesc, Model)
}


class Row:
    """A function of the table that makes one call of the framework.

    Attributes:
        of: the class that is called, or whose method is called; None for a member of the first argument.
        name: of the method or attribute; empty if the class itself is called.
        arguments: the call's arguments, each the name of a C argument, `*name` for several, or
            `keyword=name`; None for an attribute.
        value: the name of the C argument that the attribute is set to; None if the attribute is read.
    """

    def __init__(self, function: Function) -> None:
        """Read the row."""
        found = _METHOD.fullmatch(function.method or _derived(function))
        assert found is not None, function.method
        of, name, arguments, value = found.groups()
        self.of: Final = _CLASSES[of] if of else None
        self.name: Final[str] = name or ""
        self.arguments: Final = None if arguments is None else re.findall(r"[*\w=]+", arguments)
        self.value: Final[str | None] = value
        taken = [a for a in function.arguments if a.passing is not Pass.NEW_HANDLE]
        self._place: Final = {argument.name: number for number, argument in enumerate(taken)}
        self._result: Final = next((a for a in taken if a.passing is Pass.RESULT), None)

    def as_function(self) -> Callable[..., Any]:
        """A function that makes the call, given the values of C's arguments in order."""
        of, name, place, result = self.of, self.name, self._place, self._result
        if self.value is not None:
            value = place[self.value]
            return lambda *values: setattr(values[0], name, values[value])

        def found(values: Sequence[Any]) -> Any:  # noqa: ANN401 - a method or a value
            return getattr(values[0] if of is None else of, name) if name else of

        call: Callable[..., Any] = lambda *values: found(values)  # noqa: E731
        if self.arguments is not None:
            words = [text.rpartition("=") for text in self.arguments]
            spread = [(place[w.lstrip("*")], w.startswith("*")) for key, _, w in words if not key]
            named = {key: place[word] for key, _, word in words if key}

            def call(*values: Any) -> Any:  # noqa: ANN401
                positional: list[Any] = []
                for number, is_several in spread:
                    if is_several:
                        positional += values[number]
                    else:
                        positional.append(values[number])
                return found(values)(*positional, **{k: values[n] for k, n in named.items()})

        if result is None:
            return call
        room = place[result.name]
        return lambda *values: store_result(result, values[room], call(*values))


def _derived(function: Function) -> str:
    """The method of a row that names none: the function's name, and the arguments but results and counts."""
    object_, *others = function.arguments
    counts = {argument.count for argument in others if argument.ctype == "const uint32_t*"}
    passed = [
        argument.name
        for argument in others
        if argument.name not in counts and argument.passing not in (Pass.NEW_HANDLE, Pass.RESULT)
    ]
    assert object_.kind is not None
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", object_.kind.name).lower()
    return f"{function.key.removeprefix(prefix + '_')}({', '.join(passed)})"


def _free(handle: int) -> None:
    """Free a handle; RT:E9: not that of a running execution. A second call completes an interrupted one."""
    value = HANDLES.get(handle)
    if value is not None:
        value.close()
        if not value.closed:
            raise BadState("free: the execution is computing, and stays")
    FAST_PATH.release(handle)
    NATIVE_EXECUTIONS.release(handle)
    HANDLES.remove(handle)


#: Functions that the library answers without Python.
_ALONE: Final = {"memory_create_from_ahardware_buffer"}
_handlers: Final = [
    _Handler(function) if function.needs_device and function.key not in _ALONE else None
    for function in FUNCTIONS
]


def _code(what: str, carry_out: Callable[[], int | None]) -> int:
    """Run `carry_out` for the library; returns its result, or the code of the error that it raised."""
    try:
        return carry_out() or 0
    except NnburstError as error:
        logger.info("%s: %s: %s", what, error.code.name, error)
        return int(error.code)
    except MemoryError:
        logger.warning("%s: out of memory, answered with OUT_OF_MEMORY", what)
        return int(ResultCode.OUT_OF_MEMORY)
    except Exception:
        logger.exception("%s raised: a fault in nnburst, answered with OP_FAILED", what)
        return _OP_FAILED


@ffi.def_extern(name="nnb_capi_call", error=_OP_FAILED)
def _call(number: int, words: Any) -> int:  # noqa: ANN401 - a pointer of cffi's
    """Execute a call and return its code."""
    handler = _handlers[number]
    assert handler is not None
    return _code(handler.name, lambda: handler(words))


@ffi.def_extern(name="nnb_capi_finish", error=_OP_FAILED)
def _finish(handle: int, status: int) -> int:
    """Finish a run from C whose result changed; returns an error's code, or whether C may repeat the run."""

    def carry_out() -> int:
        return lib.NNB_KEEP_OFFER if FAST_PATH.finish(handle, status) else 0

    return _code("a run from C", carry_out)


@ffi.def_extern(name="nnb_capi_adopt", error=_OP_FAILED)
def _adopt(handle: int, native: Any) -> int:  # noqa: ANN401 - a pointer of cffi's
    """Turn a native execution into a Python object, and return a code."""

    def carry_out() -> None:
        NATIVE_EXECUTIONS.adopt(handle, native)

    return _code("an execution", carry_out)


@ffi.def_extern(name="nnb_capi_adopt_event", error=_OP_FAILED)
def _adopt_event(handle: int, code: int) -> int:
    """Make a Python event for a computation that C has ended with `code`; returns a code."""

    def carry_out() -> None:
        HANDLES[handle] = Event(outcome=Outcome(ResultCode(code), message="it was computed by C"))

    return _code("an event", carry_out)


@ffi.def_extern(name="nnb_capi_finish_cached", error=_OP_FAILED)
def _finish_cached(handle: int, native: Any, cached: Any, status: int) -> int:  # noqa: ANN401
    """Finish a native execution's run whose result changed, in Python; returns a code or NNB_IN_PLACE."""

    def carry_out() -> int:
        return 0 if NATIVE_EXECUTIONS.finish(handle, native, cached, status) else lib.NNB_IN_PLACE

    return _code("a native execution's run from C", carry_out)
