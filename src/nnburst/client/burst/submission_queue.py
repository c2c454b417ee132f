"""The submitted requests of a burst, oldest first, and what the queue needs of each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from nnburst._native import lib
from nnburst.client.session.gate import Gate

if TYPE_CHECKING:
    from nnburst._native import nnb_client


class InFlight(Protocol):
    """A request that can be under way."""

    in_flight: bool


class Submission(Protocol):
    """A request that was sent and whose result is out.

    Attributes:
        _abandoned: its result is not wanted any more.
        _taken: its result is not to be waited for: it has been taken out of the ring, or is overdue.
    """

    _abandoned: bool
    _taken: bool

    @property
    def _bound(self) -> InFlight:
        """The request."""

    def _collect(self, deadline_ns: int) -> None:
        """Fetch its result, until a moment on CLOCK_MONOTONIC; it must be the oldest one out."""


class SubmissionQueue(deque[Submission]):
    """The submitted requests of a burst, oldest first: those that its C side has out.

    Signal handlers may raise anywhere, several in a row. So what happens to a request is read off what the C
    side has counted, and noted without a call before anything else is done about it.

    Attributes:
        gate: keeps other threads out, since order is all that matches results with requests.
    """

    def __init__(self, client: nnb_client) -> None:
        """Count against `client`."""
        super().__init__()
        self._client = client
        self.gate: Final = Gate()

    def skip_abandoned(self) -> None:
        """Make those at the front overdue that are not wanted any more. Inside of `gate`."""
        client = self._client
        while self and self[0]._abandoned:
            first = self[0]
            if not first._taken:
                before = client.collected
                try:
                    lib.nnb_client_forsake(client)
                finally:  # no call: a second handler may raise
                    if client.collected != before:
                        first._taken = True
                if not first._taken:
                    return
            first._bound.in_flight = False
            self.popleft()
