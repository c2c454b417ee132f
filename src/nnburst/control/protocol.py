"""What both sides of the control channel speak: every message there is, and its bytes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from nnburst.control import messages
from nnburst.control.messages.message import Call, Message, Result, Upcall
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.imports.folders import import_modules_of
from nnburst.hal.timing import OutputShape

M = TypeVar("M", bound=Message)

#: Raised with every incompatible change of a message.
PROTOCOL_VERSION: Final = 2

import_modules_of(messages.__name__, messages.__path__)


def _kinds(root: type[M]) -> Iterator[type[M]]:
    """The messages below `root`: classes that no other one is derived from."""
    for kind in root.__subclasses__():
        if kind.__subclasses__():
            yield from _kinds(kind)
        else:
            yield kind


#: Every call, every upcall and every result, found in the modules of `messages`.
CALLS: Final = frozenset(_kinds(Call))
UPCALLS: Final = frozenset(_kinds(Upcall))
RESULTS: Final = frozenset(_kinds(Result))


def _one_of(kinds: frozenset[type[M]]) -> Any:  # noqa: ANN401 - a union, to be decoded by its tags
    return functools.reduce(operator.or_, kinds)


if TYPE_CHECKING:
    _AnyResult = Result
else:
    _AnyResult = _one_of(RESULTS)


class Reply(msgspec.Struct, frozen=True):
    """Answer to a call: a result with NONE; otherwise why not, and shapes with OUTPUT_INSUFFICIENT_SIZE."""

    status: ErrorStatus = ErrorStatus.NONE
    message: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    result: _AnyResult | None = None


encode: Final = msgspec.msgpack.Encoder().encode
decode_call: Final[Callable[[bytes], Call]] = msgspec.msgpack.Decoder(_one_of(CALLS)).decode
decode_upcall: Final[Callable[[bytes], Upcall]] = msgspec.msgpack.Decoder(_one_of(UPCALLS)).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
