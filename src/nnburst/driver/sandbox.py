"""Gives up a worker's rights before it reads from its client.

A client that takes a worker over thus gains little.

It keeps what executors need, which cannot be listed: memory, threads, clocks, reading files. It loses new
privileges and, if the kernel has Landlock and seccomp, writing and making files (but for the key of the
compilation caches, until that is made once), other programs, other processes' memory, sockets, and
kernel interfaces that no computation needs. Device nodes that the driver's owner has named can still be
opened for writing and be sent ioctls. Descriptors that are open already, such as cache files, stay usable.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from enum import IntFlag
from pathlib import Path
from typing import Final

from nnburst._native import ffi, lib
from nnburst.hal.environment import SANDBOX
from nnburst.hal.errors import GeneralFailure, InvalidArgument

logger = logging.getLogger(__name__)

#: NNBURST_SANDBOX=0 leaves workers as they are, for executors that need more (a GPU's driver, say).
_WANTED: Final = SANDBOX.read()


#: Device nodes that workers may open for writing; set once, before this process forks.
_nodes: list[str] = []


def admit_nodes(paths: Sequence[str]) -> None:
    """Let workers that this process forks, or becomes, open these for writing, and send them ioctls.

    Raises:
        InvalidArgument: one is no file, or is a directory.
    """
    for path in paths:
        if not Path(path).exists() or Path(path).is_dir():
            raise InvalidArgument(f"device node: {path!r}, expected the path of a node or a file")
        _nodes.append(str(Path(path).resolve()))


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
    names = [ffi.new("char[]", os.fsencode(node)) for node in _nodes]
    nodes = ffi.new("const char *[]", [*names, ffi.NULL])
    entered = lib.nnb_sandbox_enter(folder or ffi.NULL, nodes)
    if entered < 0:
        raise GeneralFailure(f"the worker cannot enter its sandbox: {os.strerror(-entered)}")
    return Sandbox(entered)
