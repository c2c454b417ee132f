"""What a worker gets when its client comes."""

from __future__ import annotations

import socket
from typing import NamedTuple


class Admission(NamedTuple):
    """Sockets of a worker, which owns them.

    Attributes:
        client: the client's; SEQPACKET, and nothing has been received from it.
        weights: to where packed weights are borrowed; None if this worker borrows none.
    """

    client: socket.socket
    weights: socket.socket | None = None
