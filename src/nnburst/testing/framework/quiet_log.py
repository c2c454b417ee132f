"""The framework's log, held back while failures are what a campaign draws."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_log() -> Iterator[None]:
    """Let the framework log nothing below CRITICAL; what was set before is set again afterwards."""
    logger = logging.getLogger("nnburst.runtime")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
