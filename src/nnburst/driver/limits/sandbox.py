"""What a worker gives up before it reads from its client, so that a client that takes it over gains little.

It keeps what executors need, which cannot be listed: memory, threads, clocks, reading files. It loses new
privileges and, if the kernel has Landlock and seccomp, writing and making files (but for the key of the
compilation caches, until that is made once), other programs, other processes' memory, sockets, and
kernel interfaces that no computation needs. Descriptors that are open already, such as cache files, stay
usable.
"""

from __future__ import annotations

import logging
import os
from enum import IntFlag
from pathlib import Path
from typing import Final

from nnburst._native import ffi, lib
from nnburst.hal.environment import SANDBOX
from nnburst.hal.errors import GeneralFailure

logger = logging.getLogger(__name__)

#: NNBURST_SANDBOX=0 leaves workers as they are, for executors that need more (a GPU's driver, say).
_WANTED: Final = SANDBOX.read()


class Sandbox(IntFlag):
    """Steps that are in force (csrc/sandbox.h)."""

    NO_NEW_PRIVILEGES = 1
    LANDLOCK = 2
    SECCOMP = 4


def enter_sandbox(writable: Path | None = None) -> Sandbox:
    """Put this process into the sandbox for good. Call it before a second thread starts.

    Args:
        writable: directory below which files may still be written; made if it is not there.

    Returns:
        The steps that this kernel has.

    Raises:
        GeneralFailure: the kernel has a step and refuses it.
    """
    if not _WANTED:
        return Sandbox(0)
    folder = b""
    if writable is not None:
        try:
            writable.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.fsencode(writable)
        except OSError as error:  # what would be remembered there is not, and that is all
            logger.info("%s cannot be made, so workers cannot write there: %s", writable, error)
    entered = lib.nnb_sandbox_enter(folder or ffi.NULL)
    if entered < 0:
        raise GeneralFailure(f"the worker cannot enter its sandbox: {os.strerror(-entered)}")
    return Sandbox(entered)
