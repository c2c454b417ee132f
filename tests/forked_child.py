"""Does things in a forked child, in which memory that its parent mapped is not mapped."""

from __future__ import annotations

import os
from collections.abc import Callable

from nnburst import Closed
from nnburst.hal.errors import BadState

_REFUSED, _TRUE, _FALSE, _OTHER = range(4)


def refused_in_child(use: Callable[[], object]) -> bool:
    """Whether a forked child that does this gets an error that says that its parent may do it."""
    return _outcome(use) == _REFUSED


def true_in_child(use: Callable[[], object]) -> bool:
    """Whether a forked child that does this gets a true value."""
    return _outcome(use) == _TRUE


def _outcome(use: Callable[[], object]) -> int:
    """Run `use` in a forked child; returns its exit code, negative if a signal ends it."""
    child = os.fork()
    if child == 0:
        outcome = _OTHER
        try:
            outcome = _TRUE if use() else _FALSE
        except (BadState, Closed) as error:
            outcome = _REFUSED if "which forked" in str(error) else _OTHER
        finally:
            os._exit(outcome)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
