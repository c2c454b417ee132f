"""Which function answers which call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from nnburst.control.channel import Fds
from nnburst.control.messages import Message
from nnburst.control.service import Answer
from nnburst.driver.client_session import ClientSession

M = TypeVar("M", bound=Message)

#: The function for each type of call; it borrows the descriptors and raises what the client shall be told.
HANDLERS: Final[dict[type[Message], Callable[[ClientSession, Any, Fds], Answer]]] = {}


def answers(
    kind: type[M],
) -> Callable[
    [Callable[[ClientSession, M, Fds], Answer]], Callable[[ClientSession, M, Fds], Answer]
]:
    """Register the decorated function for calls of type `kind`; each type has one."""

    def register(
        handler: Callable[[ClientSession, M, Fds], Answer],
    ) -> Callable[[ClientSession, M, Fds], Answer]:
        if kind in HANDLERS:
            raise TypeError(f"{kind.__name__} has a handler: {HANDLERS[kind].__name__}")
        HANDLERS[kind] = handler
        return handler

    return register
