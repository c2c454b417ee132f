"""The end of the interpreter, which a program may outlive: `Py_FinalizeEx`, or the end of a Python program.

From then on the library refuses each call. What is under way ends first, since C may be looking at what is
offered to it; then the objects are given up, while that can still be done in order.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from nnburst.capi.drafts import DRAFTS
from nnburst.capi.fast_path import FAST_PATH
from nnburst.capi.living import LIVING
from nnburst.runtime import Manager

logger = logging.getLogger("nnburst.capi")

#: Seconds that calls under way may take to end by themselves, and again after their drivers have ended.
_GRACE: Final = 5.0


def end(exchange: Any) -> None:  # noqa: ANN401 - a struct nnb_exchange of cffi's
    """Have the library refuse calls, wait for those under way, and give all objects up."""
    if not _ended(exchange):
        logger.warning("Python ends while NNAPI computes: the drivers are ended, too")
        _close_manager()
        if not _ended(exchange):
            logger.error("Python ends while NNAPI computes: its threads may not survive that")
            return
    FAST_PATH.close()
    DRAFTS.close()
    LIVING.close()


def _ended(exchange: Any) -> bool:  # noqa: ANN401 - the same
    """Whether nothing is under way any more, or comes to that in time."""
    deadline = time.monotonic() + _GRACE
    while exchange.end() or DRAFTS.is_in_use:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


def _close_manager() -> None:
    manager = Manager._one
    if manager is not None:
        manager.close()
