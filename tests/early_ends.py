"""A service whose workers end before the first answer, as they do when the owner of their device ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ending_early(path: Path, ends: int, address: str | Path) -> Iterator[threading.Thread]:
    """End the first `ends` connections to `path`, which then leads to `address`; yield the thread."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def end_early() -> None:
            for _ in range(ends):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1)  # the Hello, and the descriptor with it
            path.unlink()
            path.symlink_to(address)

        thread = threading.Thread(target=end_early)
        thread.start()
        yield thread
