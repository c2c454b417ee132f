"""Which function answers which call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from nnburst.control.channel import Fds
from nnburst.control.messages.message import Message
from nnburst.control.service import Answer
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work

M = TypeVar("M", bound=Message)

#: The function for each type of call; it borrows the descriptors and raises the client's answer.
HANDLERS: Final[dict[type[Message], Callable[[ClientSession, Any, Fds], Answer]]] = {}
#: What kind of work each is.
WORK: Final[dict[type[Message], Work]] = {}


def answers(
    kind: type[M], work: Work = Work.CALL
) -> Callable[
    [Callable[[ClientSession, M, Fds], Answer]], Callable[[ClientSession, M, Fds], Answer]
]:
    """Register the decorated function for calls of type `kind`; each type has one.

    Args:
        kind: of the calls.
        work: which of the scheduler's lanes it runs on. An EXECUTION or START runs with the priority
            of what the call's `handle` stands for.
    """

    def register(
        handler: Callable[[ClientSession, M, Fds], Answer],
    ) -> Callable[[ClientSession, M, Fds], Answer]:
        if kind in HANDLERS:
            raise TypeError(f"{kind.__name__} has a handler already: {HANDLERS[kind].__name__}")
        HANDLERS[kind] = handler
        WORK[kind] = work
        return handler

    return register
