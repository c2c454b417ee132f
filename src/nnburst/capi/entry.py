"""Where the library's calls arrive: `start` is called once, then `_call` for each call of the program.

The library has refused nulls and handles that do not live. A handle becomes its object, a number stays a
number; an error becomes its code, whatever it is: nothing is raised into C.
"""

from __future__ import annotations

import atexit
import logging
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.capi import handlers  # noqa: F401 - documents where the functions are
from nnburst.capi.addresses import unsigned
from nnburst.capi.counts import write_counts
from nnburst.capi.drafts import DRAFTS
from nnburst.capi.ending import end
from nnburst.capi.fast_path import FAST_PATH
from nnburst.capi.handlers import compilation, device, event, execution, memory, model
from nnburst.capi.interface.arguments import Argument, Pass
from nnburst.capi.interface.functions import FUNCTIONS, Function
from nnburst.capi.living import LIVING
from nnburst.hal.enums import ResultCode
from nnburst.hal.environment import LOG
from nnburst.hal.errors import BadState, GeneralFailure, InvalidArgument, NnburstError

logger = logging.getLogger("nnburst.capi")

_MODULES: Final = (compilation, device, event, execution, memory, model)
_OP_FAILED: Final = int(ResultCode.OP_FAILED)
_word_as_float: Final = ffi.new("uint32_t *")


def start(address: int, ours: int) -> None:
    """Give the library its way into Python.

    Args:
        address: of its `struct nnb_exchange`.
        ours: whether it started the interpreter, whose log then is the library's.

    Raises:
        GeneralFailure: library and package are not of one version.
    """
    exchange = ffi.cast("struct nnb_exchange *", address)
    if exchange.version != lib.NNB_EXCHANGE_VERSION:
        raise GeneralFailure(
            f"libneuralnetworks.so has interface {exchange.version},"
            f" this nnburst {lib.NNB_EXCHANGE_VERSION}"
        )
    if ours:
        _log_as_asked()
    LIVING.new_handle = exchange.new_handle
    FAST_PATH.exchange = DRAFTS.exchange = exchange
    exchange.finish = ffi.addressof(lib, "nnb_capi_finish")
    exchange.adopt = ffi.addressof(lib, "nnb_capi_adopt")
    exchange.finish_loan = ffi.addressof(lib, "nnb_capi_finish_loan")
    exchange.call = ffi.addressof(lib, "nnb_capi_call")
    weakref.finalize(end, int).atexit = False  # has weakref register what closes drivers at exit
    atexit.register(end, exchange)  # and this later, so that it comes first


def _log_as_asked() -> None:
    """Silent unless `NNBURST_LOG` names a level: the program's stderr is the program's."""
    warnings.simplefilter("ignore")
    root = logging.getLogger()
    if LOG.is_set:
        logging.basicConfig(format="%(name)s: %(message)s", stream=sys.__stderr__, force=True)
        try:
            root.setLevel(LOG.read())
        except InvalidArgument as error:  # no reason for the program not to run
            logger.warning("%s; logging from WARNING on", error)
    elif not root.handlers:
        root.addHandler(logging.NullHandler())


def _float(word: int) -> float:
    _word_as_float[0] = word
    return float(ffi.cast("float *", _word_as_float)[0])


def _objects(address: int, count: int) -> list[Any]:
    handles = ffi.cast("uint64_t *", address)
    return [LIVING[handles[index]] for index in range(count)]


_UNSIGNED: Final = {"size_t", "uint64_t"}
_Read = Callable[[Any, int], Any]


def _reader(function: Function, argument: Argument) -> _Read:
    """What makes an argument's word what its handler takes."""
    if argument.passing is Pass.HANDLE:
        return lambda words, index: LIVING[words[index]]
    if argument.passing is Pass.HANDLES:
        names = [other.name for other in function.arguments]
        count = names.index(argument.count or "")
        return lambda words, index: _objects(unsigned(words[index]), words[count])
    if argument.ctype == "float":
        return lambda words, index: _float(words[index])
    if argument.ctype in _UNSIGNED or argument.passing is not Pass.VALUE:
        return lambda words, index: unsigned(words[index])
    return lambda words, index: words[index]


class _Handler:
    """How one function of the interface is carried out."""

    __slots__ = ("_carry_out", "_readers", "_room", "name")

    def __init__(self, function: Function) -> None:
        """Find the handler, and what its arguments are made from."""
        self.name = function.name
        self._room = -1
        self._readers: list[tuple[_Read, int]] = []
        for index, argument in enumerate(function.arguments):
            if argument.passing is Pass.NEW_HANDLE:
                self._room = index
            else:
                self._readers.append((_reader(function, argument), index))
        self._carry_out = _free if function.is_free else _named(function.key)

    def __call__(self, words: Any) -> None:  # noqa: ANN401 - a pointer of cffi's
        """Carry it out; what it makes lives under the handle that the library has made."""
        made = self._carry_out(*[read(words, index) for read, index in self._readers])
        if self._room >= 0:
            LIVING[words[self._room]] = made
        elif self._carry_out is _free:
            FAST_PATH.release(words[0])
            DRAFTS.release(words[0])
            del LIVING[words[0]]
            if self.name == "ANeuralNetworksCompilation_free":
                write_counts()


def _named(key: str) -> Callable[..., Any]:
    for module in _MODULES:
        if hasattr(module, key):
            found: Callable[..., Any] = getattr(module, key)
            return found
    raise NotImplementedError(key)


def _free(value: Any) -> None:  # noqa: ANN401 - any object of the runtime
    """RT:E9: an execution that computes is not freed."""
    value.close()
    if not value.closed:
        raise BadState("free: the execution is computing, and stays")


#: What the library itself answers.
_ALONE: Final = {"memory_create_from_ahardware_buffer"}
_handlers: Final = [
    _Handler(function) if function.needs_device and function.key not in _ALONE else None
    for function in FUNCTIONS
]


def _code(what: str, carry_out: Callable[[], int | None]) -> int:
    """Do something for the library: its code, or what `carry_out` returns."""
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
    """Carry a call out: its code."""
    handler = _handlers[number]
    assert handler is not None
    return _code(handler.name, lambda: handler(words))


@ffi.def_extern(name="nnb_capi_finish", error=_OP_FAILED)
def _finish(handle: int, status: int) -> int:
    """Finish a run from C that did not end as the one before: its code, and whether the offer stands."""

    def carry_out() -> int:
        return lib.NNB_KEEP_OFFER if FAST_PATH.finish(handle, status) else 0

    return _code("a run from C", carry_out)


@ffi.def_extern(name="nnb_capi_adopt", error=_OP_FAILED)
def _adopt(handle: int, draft: Any) -> int:  # noqa: ANN401 - a pointer of cffi's
    """Make an execution of a draft: its code."""

    def carry_out() -> None:
        DRAFTS.adopt(handle, draft)

    return _code("an execution", carry_out)


@ffi.def_extern(name="nnb_capi_finish_loan", error=_OP_FAILED)
def _finish_loan(handle: int, draft: Any, loan: Any, status: int) -> int:  # noqa: ANN401
    """The same, with a run by a loan that did not end as the one before, and the place of its outputs."""

    def carry_out() -> int:
        return 0 if DRAFTS.finish(handle, draft, loan, status) else lib.NNB_IN_PLACE

    return _code("a draft's run from C", carry_out)
