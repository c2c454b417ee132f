"""One thread at a time: a second caller is refused instead of queued."""

from __future__ import annotations

from typing import Final

from nnburst.hal.errors import BurstBusy

BUSY: Final = "another thread is using this burst: one thread at a time"


class OneThread(dict[object, None]):
    """Who is inside or was just refused, in the order of coming; only the first one is inside.

        me = object()
        try:
            one_thread.enter(me)
            ...
        finally:
            one_thread.pop(me, None)

    A signal handler may raise right after any call and right at the beginning of any function of Python's.
    So what leaves is one call of a function of C's, which a lock that is taken with `acquire` or by a context
    manager of Python's is not: an exception between taking it and the `try` would leave it taken for ever.
    """

    __slots__ = ("_busy",)

    def __init__(self, busy: str = BUSY) -> None:
        """`busy` is the message of a refusal."""
        super().__init__()
        self._busy = busy

    def enter(self, me: object) -> None:
        """Go in; `me` is new and stands for this call, since a handler's may come in its middle.

        Raises:
            BurstBusy: another caller is inside.
        """
        self[me] = None
        if list(self)[0] is not me:  # noqa: RUF015 - one look: others come and go meanwhile
            raise BurstBusy(self._busy)
