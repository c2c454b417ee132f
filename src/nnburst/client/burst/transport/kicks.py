"""The socket on which a driver signals a result to a task in an event loop."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from typing import Final

from nnburst.hal.errors import Closed

#: More than a driver ever sends before the loop looks: one byte for each wait that began.
_ENOUGH: Final = 4096


class Kicks:
    """The client's end; readable after a kick and after the end. Thread-safe."""

    def __init__(self) -> None:
        """Make both ends; the driver's stays until `release_their_fd`."""
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        # A burst that is never closed gives its descriptors back with its channels, as its queues do.
        for end in (self._socket, self._theirs):
            weakref.finalize(self, end.close).atexit = False
        self._lock = threading.Lock()
        self._closed = False
        self._in_use = False

    @property
    def their_fd(self) -> int:
        """The driver's end; borrowed, for one message."""
        return self._theirs.fileno()

    def release_their_fd(self) -> None:
        """Close the driver's end here: its end of the message is what counts."""
        self._theirs.close()

    def fileno(self) -> int:
        """For an event loop."""
        return self._socket.fileno()

    def drain(self) -> bool:
        """Take the kicks that are there; False after the end."""
        try:
            return bool(self._socket.recv(_ENOUGH))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def hold(self) -> None:
        """An event loop watches the descriptor from now on: `close` leaves it to `release`.

        Raises:
            Closed: `close` was called; there is nothing to watch any more.
        """
        with self._lock:
            if not self._closed:
                self._in_use = True
                return
        raise Closed("the burst is closed")

    def release(self) -> None:
        """No event loop watches it any more."""
        with self._lock:
            self._in_use = False
            if self._closed:
                self._socket.close()

    def fail(self) -> None:
        """Wake all waiters, now and from now on."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End, and close both ends as soon as they are not watched; twice is fine."""
        self.fail()
        with self._lock:
            self._closed = True
            self._theirs.close()
            if not self._in_use:
                self._socket.close()

    def abandon_in_child(self) -> None:
        """In a forked child: close the descriptors, which are the parent's to use."""
        self._theirs.close()
        self._socket.close()
