"""Closes a device's session and process: in a call, from the garbage collector, at the end of the program."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Any

from nnburst.client.session.handshake import Session
from nnburst.client.session.process import DriverProcess
from nnburst.hal.utils import note_end

logger = logging.getLogger(__name__)


def close_device(session: Session, process: DriverProcess | None, owner: int) -> None:
    """Close a session, and wait for the end of its driver if that was launched.

    Args:
        session: the session.
        process: the driver's process; None if it was not launched.
        owner: number of the process that made the device; a forked child does nothing.
    """
    if os.getpid() != owner:
        return  # a forked child must not end its parent's connection
    session.close()
    if process is not None:
        process.close()


def close_lost(session: Session, process: DriverProcess | None, owner: int) -> None:
    """Close the session and the process of a dead driver; objects that still use them raise DeadObject."""
    session.lost = True
    close_device(session, process, owner)


def close_at_end(
    device: object, session: Session, process: DriverProcess | None, owner: int
) -> weakref.finalize[Any, Any]:
    """Have `close_collected` called when `device` is collected, or at the end of the program."""
    finalizer = weakref.finalize(device, close_collected, session, process, owner)
    note_end()
    return finalizer


def close_collected(session: Session, process: DriverProcess | None, owner: int) -> None:
    """Close a device that the garbage collector found, without a lock and without waiting.

    The collector may run on any thread, even on one that `close_device` waits for or that holds a lock. So
    another thread calls `close_device`.
    """
    if os.getpid() != owner:
        return
    if threading.main_thread().is_alive():
        session.abandon()
        try:
            threading.Thread(
                target=close_device,
                args=(session, process, owner),
                name="nnburst device closer",
            ).start()
        except RuntimeError:
            logger.warning(
                "unclosed device leaks its descriptors: cannot start the thread that closes them"
            )
        return
    try:
        close_device(session, process, owner)  # the end of the program, which waits
    except KeyboardInterrupt:  # Ctrl-C again: wait no longer, and let the finalizers of others run
        if process is not None:
            process.kill()
