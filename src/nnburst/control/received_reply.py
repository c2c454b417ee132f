"""What comes back for a call: a reply, and descriptors that come with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Self, TypeVar

from nnburst.control.channel import NO_FDS, Fds, body_of_whole_packet
from nnburst.control.messages.message import Message
from nnburst.control.protocol import Reply, decode_reply
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, NnburstError, error_for

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)


class ReceivedReply(NamedTuple):
    """A reply, and descriptors, which its receiver owns."""

    reply: Reply
    fds: Fds

    @classmethod
    def of_packet(cls, packet: bytes) -> Self:
        """The answer in a packet without descriptors.

        Raises:
            ProtocolError: the packet breaks the rules of the channel.
            msgspec.MsgspecError, ValueError, RecursionError: what is in it is not a reply.
        """
        return cls(decode_reply(body_of_whole_packet(packet)), NO_FDS)

    def result(self, expected: type[R], name: str) -> tuple[R, Fds]:
        """The result and its descriptors, which the caller owns from here on.

        Args:
            expected: type of the result.
            name: of the peer, for messages.

        Raises:
            GeneralFailure: the peer answered something else.
            NnburstError: its answer was an error.
        """
        reply, fds = self
        if reply.status not in (ErrorStatus.NONE, ErrorStatus.DEAD_OBJECT):
            fds.close()
            raise error_for(reply.status, reply.message, reply.output_shapes)
        if (
            reply.status != ErrorStatus.NONE
            or not isinstance(reply.result, expected)
            or reply.result.fd_count not in (None, len(fds))
        ):
            fds.close()
            what = type(reply.result).__name__
            raise GeneralFailure(f"{name} answered {what}, expected {expected.__name__}")
        return reply.result, fds


class ReplyListener:
    """Reports how a call went whose answer is not waited for."""

    def __init__(
        self,
        expected: type[Message],
        name: str,
        answered: Callable[[NnburstError | None], None],
        dead: Callable[[], NnburstError],
    ) -> None:
        """Expect an answer.

        Args:
            expected: type of the result, which brings no descriptors.
            name: of the peer, for messages.
            answered: called once with the outcome.
            dead: makes the error of a call that gets no answer.
        """
        self._expected, self._name, self._answered, self._dead = expected, name, answered, dead

    def put(self, answer: ReceivedReply | None, /) -> None:
        """Report the answer, or that there will be none. Never raises."""
        error: NnburstError | None = None
        if answer is None:
            error = self._dead()
        else:
            try:
                answer.result(self._expected, self._name)[1].close()
            except NnburstError as refusal:
                error = refusal
        try:
            self._answered(error)
        except Exception:
            logger.exception(
                "the callback of a call to %s raised; the connection goes on", self._name
            )
