"""Pool: threads that a front does its work by, and that go on if the process may have no more of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from nnburst.hal.errors import ResourceExhausted


class Pool(ThreadPoolExecutor):
    """Threads that are started as they are needed, the first one at once. Thread-safe.

    Python's own raises in `submit` if a thread does not start, and keeps the work although its caller takes
    it for refused. In gRPC's thread, which hands calls over, that would end the server. Here the threads that
    are there take the work that no other one can be started for.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start the first thread.

        Args:
            most: threads at once.
            name: of each, with a number behind it.

        Raises:
            ResourceExhausted: this process may have no more threads.
        """
        super().__init__(most, name)
        try:
            self.submit(int).result()
        except RuntimeError as error:
            raise ResourceExhausted(f"cannot start the thread {name!r}: {error}") from error

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
