"""Maps each call to the function that answers it, and defines checks that several functions share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from nnburst.control.channel import Fds
from nnburst.control.messages import Message, Release
from nnburst.control.service import Answer, nothing
from nnburst.driver.client_session import ClientSession, ModelSession
from nnburst.driver.scheduler import Work
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline
from nnburst.hal.types import has_passed
from nnburst.tracing.slices import Layer, Phase, trace

M = TypeVar("M", bound=Message)
#: The kind of session that a handler needs: any, or one with upcalls.
S = TypeVar("S", ModelSession, ClientSession)

#: The function for each type of call; it borrows the descriptors, and its exceptions are sent to the client.
HANDLERS: Final[dict[type[Message], Callable[[ClientSession, Any, Fds], Answer]]] = {}
#: The kind of work of each call.
WORK: Final[dict[type[Message], Work]] = {}


def answers(
    kind: type[M], work: Work = Work.CALL
) -> Callable[[Callable[[S, M, Fds], Answer]], Callable[[S, M, Fds], Answer]]:
    """Register the decorated function for calls of type `kind`; each type has one function.

    Args:
        kind: the type of the calls.
        work: the scheduler's lanes that it runs on. An EXECUTION or START runs with the priority of the
            object that the call's `handle` names.
    """

    def register(
        handler: Callable[[S, M, Fds], Answer],
    ) -> Callable[[S, M, Fds], Answer]:
        if kind in HANDLERS:
            raise TypeError(f"{kind.__name__} has a handler already: {HANDLERS[kind].__name__}")
        HANDLERS[kind] = handler
        WORK[kind] = work
        return handler

    return register


@contextlib.contextmanager
def naming(rule: str) -> Iterator[None]:
    """Prefix messages of errors, which begin with the broken rule of validation, with the device's rule."""
    try:
        yield
    except (InvalidArgument, GeneralFailure) as error:
        message = f"{error} (device:{rule})"
        raise type(error)(message, status=error.status) from error


def check_deadline(rule: str, deadline_ns: int | None) -> None:
    """Raise MissedDeadline, with `rule` in its message, if a deadline had passed when the call came."""
    if has_passed(deadline_ns):
        raise MissedDeadline(
            f"device:{rule}: the deadline has passed", status=ErrorStatus.MISSED_DEADLINE_PERSISTENT
        )


def check_in_time(deadline_ns: int | None) -> None:
    """Raise MissedDeadline if a deadline has passed since the call came (TRANSIENT)."""
    if has_passed(deadline_ns):
        raise MissedDeadline(
            "the deadline passed while the model was being prepared",
            status=ErrorStatus.MISSED_DEADLINE_TRANSIENT,
        )


@answers(Release)
def release(session: ModelSession, call: Release, _fds: Fds) -> Answer:
    """Drop a handle; executions that still use the object finish first."""
    with trace(Layer.DRIVER, Phase.TERMINATION, "release"):
        session.objects.release(call.handle)
    return nothing()
