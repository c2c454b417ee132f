"""Caps of the control channel: nothing a peer sends makes the other side allocate more."""

from __future__ import annotations

from typing import Final

#: File descriptors that a message may carry (the kernel's own limit is 253 a packet).
MAX_FDS: Final = 64
#: Bodies up to this size travel in the packet; AF_UNIX SEQPACKET refuses more than about 200 KiB.
MAX_INLINE_BYTES: Final = 64 * 1024
#: Largest body; beyond the inline size it travels in a sealed memfd. Constants of a model lie in it.
MAX_BODY_BYTES: Final = 1 << 30
#: Room for the envelope around an inline body.
ENVELOPE_BYTES: Final = 64
#: Largest packet.
MAX_PACKET_BYTES: Final = MAX_INLINE_BYTES + ENVELOPE_BYTES
#: Seconds that a reply may take to leave if the peer does not read.
SEND_TIMEOUT: Final = 5.0
#: Seconds that an upcall may take. getMemories only looks up a table, but the client may be stopped, by a
#: debugger say, and a burst has no status for one that is late.
UPCALL_TIMEOUT: Final = 30.0
#: Seconds that a client may hold a worker without sending anything.
HELLO_TIMEOUT: Final = 30.0
#: Calls of one connection that may be in progress at once.
MAX_CALLS: Final = 1024
#: File descriptors that they may have brought.
MAX_CALL_FDS: Final = 4096
#: Bytes of their bodies; the largest one fits twice.
MAX_CALL_BYTES: Final = 2 * MAX_BODY_BYTES
#: Objects of all kinds that one connection may hold.
MAX_OBJECTS: Final = 4096
#: Prepared models among them.
MAX_MODELS: Final = 1024
#: Bursts among them; each has a thread and two rings.
MAX_BURSTS: Final = 256
#: Buffers among them.
MAX_BUFFERS: Final = 1024
#: Pools of a client's memory that its driver may hold at once: those of requests under way, and of slots.
MAX_POOLS: Final = 4096
#: Fences that executions wait for, and cache files of models that wait to be prepared.
MAX_HELD_FDS: Final = 4096
#: Notifications that one connection may have to come: one for each asynchronous call and each open burst.
MAX_NOTIFICATIONS: Final = 2048
#: Characters of an error message.
MAX_MESSAGE_CHARACTERS: Final = 4096
#: Seconds that closing an object waits for the driver, which only drops a reference. One that stands still,
#: in a debugger say, has the release before it, and drops it when it goes on.
RELEASE_TIMEOUT: Final = 2.0
