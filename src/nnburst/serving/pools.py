"""Provides a thread pool that keeps working if the process cannot start more threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from nnburst.hal.errors import ResourceExhausted


class Pool(ThreadPoolExecutor):
    """A pool that starts threads when they are needed, and the first one at once. Thread-safe.

    Python's own pool raises in `submit` if a thread does not start, but keeps the work, which its caller
    takes for refused. In gRPC's thread, which submits calls, that would end the server. Here the present
    threads do the work if no other one can be started.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start the first thread.

        Args:
            most: greatest number of threads.
            name: prefix of the threads' names, before a number.

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
