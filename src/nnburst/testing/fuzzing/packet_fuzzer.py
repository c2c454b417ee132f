"""Mutates burst packets and queues in shared memory, and checks how the other process reacts.

Burst packets are mutated and sent to a running driver, which must answer each one and keep the burst open.
The mutations are the suite's own (validation:VB1 to VB6) and random ones. Every generator takes one valid
packet, an array of REQUEST_DATUM or RESULT_DATUM, and yields changed copies; the packet itself stays
unchanged. The same arguments give the same mutations.

All bytes that the ends of a queue share are changed at random while another process uses the queue. That
    process gets the queue over a socket, writes and reads in every way with short timeouts, and counts the
outcomes: success, timeout, or one of nnburst's errors. Any other outcome is a failure, and so is a call that
    takes some seconds longer than its timeout, or the end of that process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain, count, islice
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.client.device import Device
from nnburst.fmq import Flavor, MessageQueue, receive_queue, send_queue
from nnburst.fmq.shared_memory import EVENT_FLAG_BYTES, SharedMemory, layout
from nnburst.hal.enums import ErrorStatus, MeasureTiming, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import INT32_MAX, NO_TIMING, UINT32_MAX
from nnburst.hal.model import DataLocation, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import Request, RequestArgument
from nnburst.serialize import DATUM_BYTES, RESULT_DATUM, deserialize_result, serialize_request
from nnburst.serialize.wire import REQUEST, REQUEST_DATUM, RESULT, DatumUnion, Variant
from nnburst.testing.driver_under_test import deaf_to_interrupts
from nnburst.testing.faults.footprint import resident_bytes
from nnburst.testing.raw_peer import RawBurst

Packet = npt.NDArray[Any]


class Mutation(NamedTuple):
    """A mutated packet and, for reports, a description of the change."""

    description: str
    packet: Packet


def _bad_entries() -> tuple[tuple[str, bytes], ...]:
    """The seven entries that the suite inserts: one plausible datum of each variant."""
    values = {
        "packet_information": (10, 10, 10, 10),
        "input_operand_information": (0, 0, 0, 0, 10),
        "output_operand_information": (0, 0, 0, 0, 10),
        "pool_identifier": (INT32_MAX,),
        "measure_timing": (1,),
    }
    return tuple(
        (v.name, v.layout().pack(v.discriminator, *values.get(v.name, (0,))))
        for v in REQUEST.variants
    )


#: NNAPI: ValidateBurst.cpp; (variant name, 24 bytes) in the order of the discriminators.
BAD_ENTRIES: Final = _bad_entries()

#: Variants that may be replaced by another datum of the same variant without making the packet invalid.
_DIMENSIONS: Final = frozenset(
    v.discriminator for v in REQUEST.variants if v.name.endswith("dimension_value")
)

#: Values that a field is set to, beside neighbours of its own value and random ones.
_EDGES: Final = (0, 1, 2, 7, 255, 256, INT32_MAX, INT32_MAX + 1, UINT32_MAX - 1, UINT32_MAX)


def removals(packet: Packet) -> Iterator[Mutation]:
    """VB1: remove element k, for every k."""
    data = packet.tobytes()
    for k in range(len(packet)):
        changed = data[: k * DATUM_BYTES] + data[(k + 1) * DATUM_BYTES :]
        yield Mutation(f"remove element {k}", _packet(changed, packet))


def insertions(packet: Packet) -> Iterator[Mutation]:
    """VB2: insert each of the seven bad entries before every element and at the end."""
    data = packet.tobytes()
    for k in range(len(packet) + 1):
        for name, entry in BAD_ENTRIES:
            changed = data[: k * DATUM_BYTES] + entry + data[k * DATUM_BYTES :]
            yield Mutation(f"insert {name} at {k}", _packet(changed, packet))


def replacements(packet: Packet) -> Iterator[Mutation]:
    """VB3 and VB4: replace every element with each bad entry that differs from it.

    A dimension value is not replaced by another dimension value: the packet would stay valid.
    VB4 is the replacement of a pool identifier by INT32_MAX, which only slot resolution refuses.
    """
    data = packet.tobytes()
    for k in range(len(packet)):
        start, end = k * DATUM_BYTES, (k + 1) * DATUM_BYTES
        for name, entry in BAD_ENTRIES:
            same_kind = data[start] == entry[0]
            if data[start:end] == entry or (same_kind and entry[0] in _DIMENSIONS):
                continue
            changed = data[:start] + entry + data[end:]
            yield Mutation(f"replace element {k} by {name}", _packet(changed, packet))


def suite_mutations(packet: Packet) -> Iterator[Mutation]:
    """VB1 to VB4 on a request packet, exhaustively."""
    yield from removals(packet)
    yield from insertions(packet)
    yield from replacements(packet)


def count_mutations(packet: Packet) -> Iterator[Mutation]:
    """Set every count n in the packet to each of 0, 1, n-1, n+1, 2**31-1 and 2**32-1."""
    for k, variant in _elements(packet):
        for place in variant.fields:
            if place.name != "packet_size" and not place.name.startswith("number_of_"):
                continue
            n = int(variant.view(packet)[place.name][k])
            for value in sorted({0, 1, n - 1, n + 1, INT32_MAX, UINT32_MAX} - {n, -1, 2**32}):
                changed = packet.copy()
                variant.view(changed)[place.name][k] = value
                yield Mutation(f"element {k}: {place.name} {n} -> {value}", changed)


def random_bytes(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with one to four bytes set to random values."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(packet.tobytes())
        places = rng.integers(len(data), size=rng.integers(1, 5)).tolist()
        for at, value in zip(places, rng.bytes(len(places)), strict=True):
            data[at] = value
        yield Mutation(f"random bytes at {sorted(places)}", _packet(data, packet))


def random_fields(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with one field set to an edge, a neighbour of its value, or at random."""
    rng = np.random.default_rng(seed)
    elements = list(_elements(packet))
    for _ in range(count):
        k, variant = elements[rng.integers(len(elements))]
        place = variant.fields[rng.integers(len(variant.fields))]
        changed = packet.copy()
        column = variant.view(changed)[place.name]
        old = int(column[k])
        choices = (*_EDGES, old - 1, old + 1, int(rng.integers(2**32)))
        value = choices[rng.integers(len(choices))]
        column.view(f"<u{place.width}")[k] = value % (1 << (8 * place.width))
        yield Mutation(f"element {k}: {place.name} {old} -> {int(column[k])}", changed)


def random_structure(packet: Packet, seed: int, count: int) -> Iterator[Mutation]:
    """`count` packets with elements swapped, repeated, dropped or cut off at random."""
    rng = np.random.default_rng(seed)
    n = len(packet)
    for _ in range(count):
        order = list(range(n))
        for _ in range(rng.integers(1, 4)):
            at, other = rng.integers(n, size=2).tolist()
            match int(rng.integers(4)):
                case 0:
                    order[at % len(order)], order[other % len(order)] = at, other
                case 1:
                    order.insert(at % len(order), other)
                case 2 if len(order) > 1:
                    del order[at % len(order)]
                case _:
                    order = order[: max(1, at)]
        yield Mutation(f"elements {order}", packet[order])


def nonzero_padding(packet: Packet) -> list[tuple[int, int]]:
    """VB6: find the padding bytes that are not 0, as (element, byte offset).

    The original's test checks three bytes of each operandInformation of a result; here every byte that no
    field covers is checked, in requests and results. Unknown variants have no fields.
    """
    masks = _UNCOVERED[packet.dtype == REQUEST_DATUM]
    data = np.frombuffer(packet.tobytes(), np.uint8).reshape(-1, DATUM_BYTES)
    wrong = (data != 0) & masks[data[:, 0]]
    return [(int(k), int(at)) for k, at in np.argwhere(wrong)] if wrong.any() else []


def _uncovered(union: DatumUnion) -> npt.NDArray[np.bool_]:
    """For each discriminator, the bytes of an element that no field covers; the tag counts as a field."""
    masks = np.ones((256, DATUM_BYTES), bool)
    masks[:, 0] = False
    for variant in union.variants:
        for place in variant.fields:
            masks[variant.discriminator, place.offset : place.offset + place.width] = False
    return masks


_UNCOVERED: Final = {True: _uncovered(REQUEST), False: _uncovered(RESULT)}


def _union(packet: Packet) -> DatumUnion:
    return REQUEST if packet.dtype == REQUEST_DATUM else RESULT


def _elements(packet: Packet) -> Iterator[tuple[int, Variant]]:
    """Every element with its variant; elements of unknown variants are left out."""
    variants = _union(packet).variants
    for k, tag in enumerate(packet["discriminator"].tolist()):
        if tag < len(variants):
            yield k, variants[tag]


def _packet(data: bytes | bytearray, like: Packet) -> Packet:
    return np.frombuffer(bytearray(data), like.dtype)


#: Mutations made by one generator before the next seed.
_BATCH: Final = 500

_OK: Final = ErrorStatus.NONE
_ANY: Final = frozenset(ErrorStatus)
_ERRORS: Final = _ANY - {_OK}
_VALID: Final = frozenset({_OK})
_INFORMATION, *_, _TIMING = (variant.layout() for variant in RESULT.variants)
_UNKNOWN: Final = [NO_TIMING, NO_TIMING]
#: Number of bursts that are used in turn.
_BURSTS: Final = 4
#: Failures after which a campaign stops, since further ones add nothing.
_ENOUGH: Final = 20

#: A packet, and the statuses that may answer it.
Expected = tuple[Mutation, frozenset[ErrorStatus]]

#: Calls for each queue.
CALLS: Final = 400
_CAPACITY: Final = 61
_RECORD: Final = np.dtype("V8")
#: Seconds that a call may take beyond its timeout on a busy machine.
_SLOW: Final = 20.0
#: Seconds that one queue may take.
_PATIENCE: Final = 120.0


@dataclass
class PacketFuzzReport:
    """The counts and failures of a campaign.

    Attributes:
        packets: number of mutated packets sent.
        outcomes: number of answers to them by status.
        failures: descriptions of everything that must not happen.
        rss: resident bytes of the driver at the end; 0 if it has ended.
        rss_growth: bytes by which it grew.
    """

    packets: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    rss: int = 0
    rss_growth: int = 0


def small_model() -> Model:
    """A model of one operation on four numbers."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 4))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 4))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def fuzz_packets(
    device: Device, packets: int, seed: int, progress: Callable[[int], None] = lambda _: None
) -> PacketFuzzReport:
    """Send `packets` mutated packets to a driver of `device` and a valid one after each.

    All of the suite's mutations and count mutations come first, then random ones. A few bursts are used in
    turn, so that the driver is busy with one while the answer of another is checked.
    """
    report = PacketFuzzReport()
    with device.prepare(small_model()) as prepared, contextlib.ExitStack() as opened:
        memory = device.allocate(4096)
        bursts = [opened.enter_context(RawBurst(prepared)) for _ in range(_BURSTS)]
        # Each burst has slots of its own, but the first memory gets the same slot in all of them.
        (slot,) = {burst.slot_of(memory) for burst in bursts}
        valid = valid_packet(slot)
        _exchange(report, bursts, [(Mutation("none", valid), _VALID)] * _BURSTS)
        before = resident_bytes(device.pid)
        campaign = islice(_campaign(valid, seed), packets)
        while mutated := list(islice(campaign, _BURSTS)):
            _exchange(report, bursts, mutated)
            # Described by the preceding mutation, which would be the cause of a fault.
            after = [(Mutation(one.description, valid), _VALID) for one, _ in mutated]
            _exchange(report, bursts, after)
            report.packets += len(mutated)
            progress(len(mutated))
            if report.failures and not device.is_alive:
                several = ", ".join(one.description for one, _ in mutated)
                report.failures.append(f"the driver ended after one of: {several}")
                return report
            if len(report.failures) >= _ENOUGH:
                break
        report.rss = resident_bytes(device.pid)
        report.rss_growth = report.rss - before
    return report


def _campaign(valid: Packet, seed: int) -> Iterator[Expected]:
    """Mutations and the statuses that may answer each."""
    for mutation in suite_mutations(valid):
        yield mutation, _ERRORS
    for mutation in count_mutations(valid):
        yield mutation, _ERRORS
    for batch in count(seed):
        for mutation in chain(
            random_bytes(valid, batch, _BATCH),
            random_fields(valid, batch, _BATCH),
            random_structure(valid, batch, _BATCH),
        ):
            yield mutation, _ANY


def valid_packet(slot: int) -> Packet:
    """A request of `small_model` whose arrays lie in the pool behind `slot`."""
    request = Request(
        (RequestArgument(location=DataLocation(0, 0, 16), dimensions=(1, 4)),),
        (RequestArgument(location=DataLocation(0, 64, 16), dimensions=(1, 4)),),
    )
    return serialize_request(request, [slot], MeasureTiming.YES)


def _exchange(
    report: PacketFuzzReport, bursts: Sequence[RawBurst], expected: Sequence[Expected]
) -> None:
    """Exchange one packet on each burst, all at once, and note the faults of the answers."""
    pairs = list(zip(bursts, expected, strict=False))
    for burst, (mutation, _) in pairs:
        burst.send(mutation.packet)
    for burst, (mutation, allowed) in pairs:
        try:
            status, problems = judge(burst.receive(), allowed)
        except NnburstError as error:
            problems = [str(error)]
        else:
            if allowed is not _VALID:
                report.outcomes[status.name] += 1
        if problems:
            what = "a valid packet after " if allowed is _VALID else ""
            report.failures += [f"{what}{mutation.description}: {one}" for one in problems]


def judge(answer: bytes, allowed: Container[ErrorStatus]) -> tuple[ErrorStatus, list[str]]:
    """The status of a result packet, and the faults of the packet.

    Raises:
        MalformedPacket: it cannot be decoded.
    """
    status, _, timing = deserialize_result(answer)
    problems = []
    if status not in allowed:
        problems.append(f"answered {status.name}")
    # Decoding drops shapes and timing that the status does not allow; here they must be absent.
    _, _, status_sent, shapes_sent = _INFORMATION.unpack_from(answer)
    _, *durations_sent = _TIMING.unpack_from(answer, len(answer) - DATUM_BYTES)
    if status_sent != status:
        problems.append(f"sent as status {status_sent}")
    if status != _OK and shapes_sent:
        problems.append(f"{status.name} with shapes")
    if status != _OK and durations_sent != _UNKNOWN:
        problems.append(f"{status.name} with a timing")
    has_both = timing.measured and timing.time_on_device != NO_TIMING
    if status == _OK and has_both and timing.time_on_device > timing.time_in_driver:
        problems.append(f"{timing}")
    if nonzero_padding(np.frombuffer(answer, RESULT_DATUM)):
        problems.append("padding is not 0")
    return status, problems


@dataclass
class QueueReport:
    """The results of fuzzing queues.

    Attributes:
        queues: number of queues used.
        outcomes: number of calls by outcome.
        failures: descriptions of forbidden outcomes.
    """

    queues: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def fuzz_queues(
    queues: int, seed: int, advance: Callable[[int], object] = lambda _: None
) -> QueueReport:
    """Fuzz this number of queues, one after the other."""
    report, rng = QueueReport(), Random(seed)  # noqa: S311 - mutations
    with closing(_Victim(seed)) as victim:
        for _ in range(queues):
            if report.failures:
                break
            _use_one(victim, rng, report)
            advance(1)
    return report


class _Victim:
    """The process that uses the queues."""

    def __init__(self, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.socket, theirs = socket.socketpair()
        self.process = context.Process(target=_use_queues, args=(theirs, seed), daemon=True)
        with deaf_to_interrupts():
            self.process.start()
        theirs.close()
        self.socket.settimeout(_PATIENCE)

    def close(self) -> None:
        self.socket.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()


def _use_one(victim: _Victim, rng: Random, report: QueueReport) -> None:
    flavor = rng.choice(tuple(Flavor))
    dtype = rng.choice((_RECORD, np.dtype("S")))
    kind: Any = bytes if dtype.kind == "S" else dtype
    # The maker of a broadcast queue changes the bytes that readers cannot write through its own mapping.
    writes = flavor != Flavor.UNSYNCHRONIZED_WRITE and rng.random() < 0.5
    descriptor = layout(dtype.itemsize or 1, _CAPACITY * (dtype.itemsize or 8), flavor, ends=True)
    protected = descriptor.is_broadcast
    memories = [SharedMemory.create(descriptor.size_bytes(), read_only_for_others=protected)]
    memory = memories[0]
    mapped = [memory.map_then_protect() if protected else memory.map_memory(writable=True)]
    if protected:
        memories.append(SharedMemory.create(EVENT_FLAG_BYTES))
        mapped.append(memories[1].map_memory(writable=True))
    views = [np.frombuffer(view, np.uint8) for view in mapped]
    with MessageQueue(descriptor, memories, mapped, np.dtype(kind)) as queue:
        victim.socket.sendall(bytes([writes, dtype.itemsize]))
        send_queue(victim.socket, queue)
        _disturb_until_done(victim, queue, views, rng, writes=writes)
        answer = msgspec.json.decode(_line(victim.socket))
    report.queues += 1
    report.outcomes.update(answer["outcomes"])
    report.failures += answer["failures"]


def _disturb_until_done(
    victim: _Victim,
    queue: MessageQueue,
    views: list[npt.NDArray[np.uint8]],
    rng: Random,
    *,
    writes: bool,
) -> None:
    """Change bytes, most of them outside of the data, and sometimes write or read as an honest end does."""
    parts = [grantor for grantor in queue.descriptor.grantors if grantor.extent]
    deadline = time.monotonic() + _PATIENCE
    while not _has_answered(victim):
        for _ in range(rng.randrange(20)):
            part = rng.choice(parts)
            at = part.offset + rng.randrange(min(part.extent, 64))
            views[part.fd_index][at] = rng.randrange(256)
        honest = rng.random()
        if honest < 0.3:
            _suppressed(lambda: _put(queue, rng) if not writes else _take(queue, rng))
        elif honest < 0.6:  # back to valid counters, so that calls get beyond their check
            for part in parts[:2]:
                views[0][part.offset : part.offset + 8] = 0
        if time.monotonic() > deadline:
            raise TimeoutError("the process that uses the queue hangs")
        time.sleep(rng.random() * 2e-4)


def _has_answered(victim: _Victim) -> bool:
    return bool(select.select([victim.socket], [], [], 0)[0])


def _suppressed(call: Callable[[], object]) -> None:
    with suppress(NnburstError):
        call()


def _line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        more = connection.recv(65536)
        if not more:
            return b'{"outcomes": {}, "failures": ["the process has ended"]}'
        found += more
    return found


def _put(queue: MessageQueue, rng: Random) -> object:
    size = queue.dtype.itemsize
    timeout = rng.choice((0.0, 1e-4, 2e-3))
    if not size:
        return queue.send(bytes(rng.randrange(90)), timeout)
    count = rng.randrange(1, 9)
    way = rng.randrange(3)
    if way == 0:
        return queue.write(np.zeros(count, queue.dtype), timeout)
    if way == 1:
        return queue.sender(np.zeros(count, queue.dtype), timeout)()
    with queue.writing(count, timeout) as place:
        place[:] = np.zeros(count, queue.dtype)
    return True


def _take(queue: MessageQueue, rng: Random) -> object:
    size = queue.dtype.itemsize
    timeout = rng.choice((0.0, 1e-4, 2e-3))
    if not size:
        return queue.receive(timeout)
    count = rng.randrange(1, 9)
    way = rng.randrange(4)
    if way == 0:
        return queue.read(count, timeout)
    if way == 1:
        return queue.read_into(np.zeros(count, queue.dtype), timeout)
    if way == 2:
        return queue.receiver(np.zeros(count, queue.dtype), timeout)()
    with queue.reading(count, timeout) as found:
        return found.tobytes()


def _use_queues(connection: socket.socket, seed: int) -> None:
    """Run the other process until the socket is closed."""
    rng = Random(seed + 1)  # noqa: S311 - choices
    with connection, suppress(ConnectionError):  # amid a queue, too
        while kind := connection.recv(2, socket.MSG_WAITALL):
            outcomes: Counter[str] = Counter()
            failures: list[str] = []
            _use(connection, bool(kind[0]), kind[1], rng, outcomes, failures)
            answer = {"outcomes": dict(outcomes), "failures": failures}
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def _use(
    connection: socket.socket,
    writes: bool,
    itemsize: int,
    rng: Random,
    outcomes: Counter[str],
    failures: list[str],
) -> None:
    dtype: Any = f"V{itemsize}" if itemsize else bytes
    try:
        with receive_queue(connection, dtype, timeout=60, spin_window=2e-5) as queue:
            for _ in range(CALLS):
                began = time.monotonic()
                try:
                    done = _put(queue, rng) if writes else _take(queue, rng)
                    outcomes["not now" if done is None or done is False else "done"] += 1
                except NnburstError as error:
                    outcomes[type(error).__name__] += 1
                took = time.monotonic() - began
                if took > _SLOW:
                    failures.append(f"a call took {took:.1f} s")
            queue.statistics()
    except NnburstError as error:
        outcomes[f"opening: {type(error).__name__}"] += 1
    except Exception:  # any other exception is a failure
        failures.append(traceback.format_exc())
