"""Calls on events."""

from __future__ import annotations

from nnburst.capi import addresses
from nnburst.runtime.objects.event import Event


def event_wait(event: Event) -> None:
    """See the table."""
    event.wait()


def event_create_from_sync_fence_fd(fd: int) -> Event:
    """See the table."""
    return Event.from_sync_fence(fd)


def event_get_sync_fence_fd(event: Event, place: int) -> None:
    """See the table."""
    addresses.store("int", place, event.sync_fence())
