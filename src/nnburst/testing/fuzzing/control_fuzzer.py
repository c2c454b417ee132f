"""Sends mutated control messages to a running driver and checks that each is answered."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import inspect

from nnburst.control.channel import MAX_FDS
from nnburst.control.messages import (
    CALLS,
    PROTOCOL_VERSION,
    Allocated,
    Call,
    Fenced,
    Handle,
    OpenAidlBurst,
    Opened,
    Ping,
    PrepareModel,
    Release,
    encode,
)
from nnburst.fmq.shared_memory import SharedMemory, layout
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import NO_CACHE_TOKEN, BufferRole, Request, RequestArgument
from nnburst.hal.utils import Closing
from nnburst.serialize import DATUM_BYTES
from nnburst.testing.fuzzing.packet_fuzzer import small_model
from nnburst.testing.raw_peer import PATIENCE, RawConnection

# -- Valid calls: one of every kind of the protocol ------------------------------------------------
# Each call is made from its fields' types, as an honest client might make it. So a new message is fuzzed
# without an entry here: a field that is not listed below gets the smallest value that its type allows.


#: Bytes of memory that honest calls name; the memory itself is larger.
POOL_BYTES: Final = 4096

_QUEUE: Final = msgspec.Raw(msgspec.msgpack.encode(layout(DATUM_BYTES, 64)))
_AT: Final = tuple(RequestArgument(location=DataLocation(0, n * 64, 16)) for n in (0, 1))
#: The value of a field with this name.
_WORDS: Final[Mapping[str, object]] = {
    "protocol": PROTOCOL_VERSION,
    "feature_level": int(FeatureLevel.AIDL_V4),
    "model": small_model(),
    "request": Request((_AT[0],), (_AT[1],), (MemoryPool(POOL_BYTES),)),
    "size": POOL_BYTES,
    "callback": 1,
    "request_channel": _QUEUE,
    "result_channel": _QUEUE,
    "token": NO_CACHE_TOKEN,
    "input_roles": (BufferRole(0, 0),),
    "memory_identifiers": (-1,),
    "model_cache": 1,
    "data_cache": 1,
    "wait_for": 1,
}


@functools.lru_cache(maxsize=8)
def honest_calls(handle: int) -> tuple[Call, ...]:
    """One call of each kind, and a second one if a kind has optional fields with an entry above.

    Args:
        handle: handle of the object that each call names.
    """
    return tuple(
        call
        for kind in sorted(CALLS, key=lambda kind: kind.__name__)
        for call in _variants(kind, handle)
    )


def takes_a_handle(kind: type[Call]) -> bool:
    """Whether calls of this kind name an object of the driver."""
    types = get_type_hints(kind, include_extras=True).values()
    return any(wanted in types for wanted in (Handle, tuple[Handle, ...]))


def _variants(kind: type[Call], handle: int) -> Iterator[Call]:
    words = {**_WORDS, "handle": handle, "prepared_models": (handle,)}
    fields = msgspec.structs.fields(kind)
    required = {
        field.name: words.get(field.name, _smallest(inspect.type_info(field.type)))
        for field in fields
        if field.required
    }
    yield kind(**required)
    optional = {f.name: words[f.name] for f in fields if not f.required and f.name in words}
    if optional:
        yield kind(**required, **optional)


def _smallest(kind: inspect.Type) -> object:
    """The smallest value of a type that messages have."""
    match kind:
        case inspect.Metadata():
            return _smallest(kind.type)
        case inspect.IntType():
            return max(kind.ge or 0, 0)
        case inspect.RawType():
            return msgspec.Raw(msgspec.msgpack.encode(None))
        case inspect.EnumType():
            return next(iter(kind.cls))
        case inspect.StructType():
            required = (field for field in kind.fields if field.required)
            return kind.cls(**{field.name: _smallest(field.type) for field in required})
        case inspect.VarTupleType():
            return ()
        case inspect.UnionType():
            return _smallest(kind.types[0])
        case inspect.BoolType() | inspect.StrType() | inspect.BytesType() | inspect.FloatType():
            return _PLAIN[type(kind)]
    raise TypeError(f"messages have no fields of type {kind}")


_PLAIN: Final[Mapping[type, object]] = {
    inspect.BoolType: False,
    inspect.StrType: "",
    inspect.BytesType: b"",
    inspect.FloatType: 0.0,
}


# -- The fuzzer ------------------------------------------------------------------------------------


#: Messages between two checks of the driver's descriptors, and by how many these may have grown.
_BATCH: Final = 500
_SLACK_FDS: Final = 8
#: Failures after which a campaign stops, since further ones add nothing.
_ENOUGH: Final = 20
#: Seconds until executions that waited for a fence must have released their descriptors.
_PATIENCE: Final = 5.0
_INTEGERS: Final = (
    0,
    1,
    -1,
    2,
    7,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
)
_MESSAGES: Final = (
    "Hello", "Ping", "PrepareModel", "Execute", "Release", "Nothing", "GetMemories", "NotifyExecuted", "",
)  # fmt: skip


@dataclass
class ControlReport:
    """The counts and failures of a campaign.

    Attributes:
        messages: number of messages sent.
        outcomes: number of answers by status.
        failures: descriptions of everything that must not happen.
        rss_growth: bytes by which the driver grew.
    """

    messages: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    rss_growth: int = 0


def fuzz_control(
    count: int,
    seed: int = 0,
    executor: str = "reference",
    progress: Callable[[int], None] = lambda _done: None,
) -> ControlReport:
    """Launch a driver and send it `count` mutated messages.

    Every message must be answered within seconds. In between, objects that messages have made are released,
    and the driver must then hold no more descriptors than before.

    Args:
        count: number of messages.
        seed: each message of a run depends on the seed and on the driver's earlier answers.
        executor: the driver's executor.
        progress: called from time to time with the number of messages sent.
    """
    report = ControlReport()
    with RawConnection(executor) as driver, _Descriptors() as descriptors:
        campaign = _Campaign(driver, descriptors, Random(seed), report)  # noqa: S311 - no secrets
        campaign.start()
        before = _rss(driver.pid)
        while report.messages < count and len(report.failures) < _ENOUGH:
            batch = min(_BATCH, count - report.messages)
            if not campaign.batch(batch):
                break
            progress(batch)
        report.rss_growth = max(_rss(driver.pid) - before, 0)
    return report


class _Campaign:
    """One driver, the objects that messages name, and the random choices."""

    def __init__(
        self,
        driver: RawConnection,
        descriptors: _Descriptors,
        random: Random,
        report: ControlReport,
    ) -> None:
        self._driver = driver
        self._descriptors = descriptors
        self._random = random
        self._report = report
        self._model = 0
        self._fds = 0

    def start(self) -> None:
        """Prepare the model that calls name."""
        self._prepare()
        self._fds = self._driver.count_fds()

    def batch(self, count: int) -> bool:
        """Send `count` messages; False if the driver has ended or cannot be relied on any more."""
        for _ in range(count):
            body, fds = self._mutated()
            try:
                reply = self._driver.send(body, fds)
            except (NnburstError, msgspec.MsgspecError) as error:
                self._report.failures.append(f"{error}: {body[:200]!r}")
                return False
            if reply is None:
                self._report.failures.append(f"the driver ended after {body[:200]!r}")
                return False
            self._report.messages += 1
            self._report.outcomes[reply.status.name] += 1
            if isinstance(reply.result, Opened | Allocated | Fenced):
                self._driver.call(Release(reply.result.handle))
        self._begin_again()
        held = self._settled_fds()
        if held > self._fds + _SLACK_FDS:
            self._report.failures.append(f"the driver held {self._fds} descriptors, now {held}")
        return True

    def _settled_fds(self) -> int:
        """Count the driver's descriptors once no execution waits for fences."""
        deadline = time.monotonic() + _PATIENCE
        while (held := self._driver.count_fds()) > self._fds + _SLACK_FDS:
            if time.monotonic() > deadline:
                break
            self._driver.call(Ping())
        return held

    def _begin_again(self) -> None:
        """Fail fences, release objects of notifications, and prepare models that a message released again."""
        self._descriptors.fail_fences()
        while self._driver.prepared:
            handle = self._driver.prepared.popleft()
            if handle != self._model:
                self._driver.call(Release(handle))
        reply = self._driver.call(OpenAidlBurst(self._model))
        if reply is not None and isinstance(reply.result, Opened):
            self._driver.call(Release(reply.result.handle))
        else:
            self._prepare()

    def _prepare(self) -> None:
        self._driver.prepared.clear()
        self._driver.call(PrepareModel(small_model(), 1))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._driver.prepared:
                self._model = self._driver.prepared[-1]
                return
            self._driver.call(Ping())
        raise NnburstError("the model was not prepared")

    def _mutated(self) -> tuple[bytes, Sequence[int]]:
        random = self._random
        call = random.choice(honest_calls(self._model))
        tree = msgspec.msgpack.decode(encode(call))
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            tree = mutate_tree(tree, random)
        body = msgspec.msgpack.encode(tree)
        if random.random() < 0.2:
            body = mutate_bytes(body, random)
        wanted = call.fd_count
        count = 2 if wanted is None else wanted
        if random.random() < 0.2:
            count = random.choice((0, 1, count + 1, MAX_FDS))
        return body, self._descriptors.some(count, random)


def mutate_tree(tree: Any, random: Random) -> Any:  # noqa: ANN401 - whatever msgpack can encode
    """Change a tree in place: replace, remove, double or nest one value."""
    holder = [tree]
    places = list(_places(holder))
    container, key = random.choice(places)
    choice = random.randrange(6)
    if choice == 0 and isinstance(container, dict):
        del container[key]
    elif choice == 1 and isinstance(container, list) and container is not holder:
        container.insert(random.randrange(len(container) + 1), container[key])
    elif choice == 2 and isinstance(container, list) and container is not holder:
        del container[key]
    elif choice == 3:
        container[key] = _nested(container[key], random.choice((1, 2, 50, 150)))
    else:
        container[key] = _other(container[key], random)
    return holder[0] if holder else None


def mutate_bytes(body: bytes, random: Random) -> bytes:
    """Flip some bytes, cut some off or insert some."""
    mutated = bytearray(body)
    for _ in range(random.choice((1, 2, 8))):
        at = random.randrange(len(mutated) + 1)
        choice = random.randrange(3)
        if choice == 0 and at < len(mutated):
            mutated[at] ^= 1 << random.randrange(8)
        elif choice == 1:
            del mutated[at : at + random.choice((1, 4, 1 << 16))]
        else:
            mutated[at:at] = random.randbytes(random.choice((1, 4, 64)))
    return bytes(mutated)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """All (container, key) pairs of a tree."""
    stack = [tree]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                stack.append(container[key])


def _nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


def _other(value: object, random: Random) -> object:
    if isinstance(value, bool) or random.random() < 0.2:
        return random.choice([None, True, 0, -1, 1.5, float("nan"), "", b"", "x" * 5000, [], {}])
    if isinstance(value, int):
        return random.choice((*_INTEGERS, value + 1, value - 1))
    if isinstance(value, str):
        return random.choice(_MESSAGES)
    if isinstance(value, bytes):
        return random.choice((b"", value[:-1], value + b"\0", bytes(len(value)), value * 3))
    return random.choice((None, [], {}, 0))


class _Descriptors(Closing):
    """Descriptors of every kind that a client could send, open as long as this object."""

    def __init__(self) -> None:
        self._memories = [SharedMemory.create(POOL_BYTES) for _ in range(2)]
        unsealed = os.memfd_create("unsealed")
        os.ftruncate(unsealed, POOL_BYTES)
        self._fences = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._others = [
            unsealed,
            os.memfd_create("empty", os.MFD_ALLOW_SEALING),
            *os.pipe(),
            os.open("/dev/zero", os.O_RDWR),
            os.open("/", os.O_RDONLY),
            os.open(__file__, os.O_RDONLY),
        ]

    def some(self, count: int, random: Random) -> list[int]:
        """Pick `count` descriptors, mostly of proper pools."""
        good = [memory.fd for memory in self._memories]
        others = [*self._others, *(fence.fileno() for fence in self._fences)]
        return [random.choice(good if random.random() < 0.8 else others) for _ in range(count)]

    def fail_fences(self) -> None:
        """Put the fences into the error state and replace them with new ones.

        No other process signals the fences, so an execution that waits for one would otherwise never end.
        """
        for fence in self._fences:
            with contextlib.suppress(OSError):  # shutting the first down has closed the other, too
                fence.shutdown(socket.SHUT_RDWR)
            fence.close()
        self._fences = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def close(self) -> None:
        for memory in self._memories:
            memory.close()
        for fence in self._fences:
            fence.close()
        for fd in self._others:
            os.close(fd)


def _rss(pid: int) -> int:
    with Path(f"/proc/{pid}/statm").open(encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
