"""The two channels of a burst, which its client has made: hostile until they have been checked."""

from __future__ import annotations

import os
import socket
import weakref
from typing import NamedTuple

import msgspec

from nnburst.control.channel import Fds
from nnburst.control.messages.burst import OpenBurst
from nnburst.driver.limits.quotas import SHARED_BYTES
from nnburst.fmq.descriptor import Flavor, decode_descriptor
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.limits import MAX_BURST_CHANNEL_LENGTH
from nnburst.serialize import DATUM_BYTES


class BurstChannels(NamedTuple):
    """What a burst is served over.

    Attributes:
        requests: from the client.
        results: to it.
        kicks: where a byte shows a client in an event loop that a result is there; None without one.
    """

    requests: MessageQueue
    results: MessageQueue
    kicks: socket.socket | None = None

    def close(self) -> None:
        """Let go of all."""
        self.requests.close()
        self.results.close()
        if self.kicks is not None:
            self.kicks.close()


def adopt_channels(call: OpenBurst, fds: Fds) -> BurstChannels:
    """What a client wants to have a burst served over; the caller's from here on.

    Args:
        call: descriptors of the two channels.
        fds: one region for each channel, and a socket for kicks if the client uses event loops.

    Raises:
        InvalidArgument: a descriptor does not describe a fresh synchronized queue of datums with an event
            flag in its region, or the third one is not such a socket.
        ResourceExhausted: the client has as much memory as it may.
    """
    if len(fds) not in (2, 3):
        raise InvalidArgument(
            f"{len(fds)} fds, expected one for each of the two channels, and a socket or none"
        )
    kicks = _adopt_kicks(fds.take(2)) if len(fds) == 3 else None
    try:
        return BurstChannels(*_open_both(call, fds), kicks)
    except BaseException:
        if kicks is not None:
            kicks.close()
        raise


def _open_both(call: OpenBurst, fds: Fds) -> tuple[MessageQueue, MessageQueue]:
    if os.path.sameopenfile(fds[0], fds[1]):  # it would take its own results for requests
        raise InvalidArgument("result_channel: lies in the memory of request_channel")
    requests = _open_channel("request_channel", call.request_channel, fds.take(0))
    try:
        results = _open_channel("result_channel", call.result_channel, fds.take(1))
    except BaseException:
        requests.close()
        raise
    return requests, results


def _adopt_kicks(fd: int) -> socket.socket:
    """The client's socket for kicks; a byte is only ever sent to it without waiting."""
    try:
        kicks = socket.socket(fileno=fd)
    except OSError as error:
        os.close(fd)
        raise InvalidArgument(f"kicks: expected a socket: {error}") from error
    if (kicks.family, kicks.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        kicks.close()
        raise InvalidArgument("kicks: expected an AF_UNIX STREAM socket")
    if _keeps_something(kicks):
        kicks.close()
        raise InvalidArgument("kicks: expected an empty socket, bytes are in it")
    return kicks


def _keeps_something(kicks: socket.socket) -> bool:
    """Whether descriptors may lie in its queue, which is never read; from here on nothing gets there."""
    try:
        kicks.shutdown(socket.SHUT_RD)
        return bool(kicks.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False  # it was never connected: it cannot be sent to


def _open_channel(name: str, encoded: msgspec.Raw, fd: int) -> MessageQueue:
    try:
        memory = SharedMemory.adopt(fd)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error}") from error
    try:
        charge = SHARED_BYTES.charge(memory.size)
        descriptor = decode_descriptor(encoded)
        queue_ = MessageQueue.open(descriptor, [memory], DATUM_BYTES, fresh=True)
        weakref.finalize(queue_, charge.close)
    except ResourceExhausted:
        memory.close()
        raise
    except (msgspec.MsgspecError, NnburstError) as error:
        memory.close()
        raise InvalidArgument(f"{name}: {error}") from error
    if (
        queue_.event_flag is None
        or descriptor.flags != Flavor.SYNCHRONIZED_READ_WRITE
        or not 2 <= queue_.capacity <= MAX_BURST_CHANNEL_LENGTH
    ):
        queue_.close()
        raise InvalidArgument(
            f"{name}: expected a synchronized queue with an event flag and 2 to"
            f" {MAX_BURST_CHANNEL_LENGTH} elements"
        )
    return queue_
