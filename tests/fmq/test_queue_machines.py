"""Any order of calls on the ends of a queue, compared with a plain list of its expected content.

`NNBURST_EXAMPLES=20000` makes a long run.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fmq.queues import ELEMENT, counter, create, numbers, other_end
from nnburst.fmq.message_queue import Claim, MessageQueue, QueueStatistics
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal import environment

EXAMPLES = settings(
    max_examples=environment.EXAMPLES.read(),
    stateful_step_count=40,
    deadline=None,
)
SMALL = st.integers(0, 10)
#: Elements that a queue has carried before: none, some, and so many that its counters wrap within the run.
STARTS = st.sampled_from([0, 0, 5]) | st.integers(1, 12).map(lambda left: 2**62 - left)


def queue_at(start: int, capacity: int, flavor: Flavor) -> MessageQueue:
    """An empty queue as if `start` elements went through it."""
    queue = create(capacity, flavor)
    for grantor in (0, 1):
        counter(queue, grantor)[0] = start * ELEMENT.itemsize
    return other_end(queue)


def fill(claim: Claim, first: int) -> None:
    """Write numbers that count up from `first` to all that was claimed."""
    split = len(claim.first)
    claim.first[:] = numbers(first, split)
    claim.second[:] = numbers(first + split, len(claim.second))


def held_by(claim: Claim) -> list[int]:
    """The elements of a claim."""
    return [*claim.first.tolist(), *claim.second.tolist()]


class Machine(RuleBasedStateMachine):
    """One writer. `written` has every element that was ever published, in order."""

    flavor: Flavor

    @initialize(capacity=st.integers(1, 9), start=STARTS)
    def open(self, capacity: int, start: int) -> None:
        self.capacity, self.start = capacity, start
        self.writer = queue_at(start, capacity, self.flavor)
        self.written: list[int] = []
        #: Beyond what was published so far: elements that a claim has put into place and not committed.
        self.scribbled = 0
        self.claim: tuple[Claim, int] | None = None
        self.next = 0
        self.open_reader()

    def open_reader(self) -> None:
        """The machine's first reader."""
        raise NotImplementedError

    def room(self) -> int:
        """Elements that can be written."""
        raise NotImplementedError

    @property
    def can_be_opened(self) -> bool:
        """Whether an end that is opened now finds its place.

        Counters of 64 bits do not wrap within a lifetime. Ends that are open while they do go on; one
        that is opened afterwards takes its place from the counter, which only some capacities allow.
        """
        wrapped = (self.start + len(self.written)) * ELEMENT.itemsize >= 2**64
        return not wrapped or 2**64 % (self.capacity * ELEMENT.itemsize) == 0

    @rule(count=SMALL)
    def write(self, count: int) -> None:
        fits = count <= self.room()
        assert self.writer.write(numbers(self.next, count)) == fits
        if fits:
            self.claim = None
            self._publish(count)

    @rule(count=SMALL)
    def begin_write(self, count: int) -> None:
        claim = self.writer.begin_write(count)
        assert (claim is not None) == (count <= self.room())
        if claim is not None:
            assert len(claim.first) + len(claim.second) == count
            fill(claim, self.next)
            self.claim = claim, count
            self.scribbled = max(self.scribbled, count)

    @rule(fewer=SMALL)
    @precondition(lambda self: self.claim is not None)
    def commit_write(self, fewer: int) -> None:
        assert self.claim is not None
        count = max(self.claim[1] - fewer, 0)
        assert self.writer.commit_write(count)
        self.claim = None
        self._publish(count)

    @rule()
    @precondition(lambda self: self.claim is not None)
    def abandon_write(self) -> None:
        """No reader sees a claim that is not committed; the next write begins at the same place."""
        self.claim = None

    @rule()
    @precondition(lambda self: self.can_be_opened)
    def another_writer(self) -> None:
        """Another writer goes on where this one stopped; its claim goes with it."""
        self.writer, self.claim = other_end(self.writer), None

    def _publish(self, count: int) -> None:
        self.written += range(self.next, self.next + count)
        self.next += count
        self.scribbled = max(self.scribbled - count, 0)
        # Numbers of abandoned claims never come again, so that one which turns up is noticed.
        self.next += 100

    @invariant()
    def the_writer_knows_its_room(self) -> None:
        if hasattr(self, "writer"):
            assert self.writer.available_to_write() == self.room()
            written = self._statistic(len(self.written))
            assert self.writer.statistics().written == written
            assert not self.writer.statistics().corrupted

    def _statistic(self, count: int) -> int:
        return (self.start + count) % (2**64 // ELEMENT.itemsize)


class SynchronizedQueue(Machine):
    """One reader: all written elements are read once and in order, whatever happens in between."""

    flavor = Flavor.SYNCHRONIZED_READ_WRITE

    def open_reader(self) -> None:
        self.reader = other_end(self.writer)
        self.taken = 0
        self.held: tuple[Claim, int] | None = None

    def room(self) -> int:
        return self.capacity - len(self.unread)

    @property
    def unread(self) -> list[int]:
        return self.written[self.taken :]

    @rule(count=SMALL)
    def read(self, count: int) -> None:
        found = self.reader.read(count)
        if count > len(self.unread):
            assert found is None
            return
        assert found is not None
        assert found.tolist() == self.unread[:count]
        self._take(count)

    @rule(count=SMALL)
    def begin_read(self, count: int) -> None:
        claim = self.reader.begin_read(count)
        assert (claim is not None) == (count <= len(self.unread))
        if claim is not None:
            self.held = claim, count

    @rule(fewer=SMALL)
    @precondition(lambda self: self.held is not None)
    def commit_read(self, fewer: int) -> None:
        assert self.held is not None
        count = max(self.held[1] - fewer, 0)
        assert self.reader.commit_read(count)
        self._take(count)

    @rule()
    @precondition(lambda self: self.can_be_opened)
    def another_reader(self) -> None:
        """Another reader goes on; what the last one has claimed and not committed is still there."""
        self.reader, self.held = other_end(self.writer), None

    def _take(self, count: int) -> None:
        self.taken += count
        self.held = None

    @invariant()
    def the_reader_knows_what_is_there(self) -> None:
        if hasattr(self, "reader"):
            assert self.reader.available_to_read() == len(self.unread)
            found = self.reader.statistics()
            read = self._statistic(self.taken)
            assert found == QueueStatistics(self.capacity, found.written, read, False)

    @invariant()
    def what_is_claimed_for_reading_stays(self) -> None:
        if getattr(self, "held", None) is not None:
            claim, count = self.held
            assert held_by(claim) == self.unread[:count]


@dataclass
class Reader:
    """One of many readers of an unsynchronized queue, and where it should be."""

    end: MessageQueue
    at: int
    held: tuple[Claim, int] | None = None


class UnsynchronizedQueue(Machine):
    """Many readers, for whom the writer never waits: each reads all in order, or learns of lost elements."""

    flavor = Flavor.UNSYNCHRONIZED_WRITE

    def open_reader(self) -> None:
        self.readers: list[Reader] = []
        self.another_reader()

    def room(self) -> int:
        return self.capacity

    @rule()
    @precondition(lambda self: self.can_be_opened and len(self.readers) < 4)
    def another_reader(self) -> None:
        """It begins with what is written from now on."""
        self.readers.append(Reader(other_end(self.writer), len(self.written)))

    @rule(who=SMALL, count=SMALL)
    def read(self, who: int, count: int) -> None:
        reader = self._reader(who)
        reader.held = None
        there = self._is_there(reader, count)
        found = reader.end.read(count)
        assert (found is not None) == there
        if found is not None:
            self._check(reader, found.tolist())
            reader.at += count

    @rule(who=SMALL, count=SMALL)
    def begin_read(self, who: int, count: int) -> None:
        reader = self._reader(who)
        there = self._is_there(reader, count)
        claim = reader.end.begin_read(count)
        assert (claim is not None) == there
        reader.held = None if claim is None else (claim, count)

    @rule(who=SMALL, fewer=SMALL)
    def commit_read(self, who: int, fewer: int) -> None:
        """Only a commit shows whether what was claimed was still there when it was looked at."""
        reader = self._reader(who)
        assume(reader.held is not None)
        assert reader.held is not None
        claim, claimed = reader.held
        reader.held = None
        count = max(claimed - fewer, 0)
        found = held_by(claim)
        there = self._is_there(reader, count)
        assert reader.end.commit_read(count) == there
        if there:
            self._check(reader, found)
            reader.at += count

    @rule(who=SMALL)
    def look(self, who: int) -> None:
        reader = self._reader(who)
        if self._is_there(reader, 0):
            assert reader.end.available_to_read() == len(self.written) - reader.at
        else:
            reader.held = None
            assert reader.end.available_to_read() == 0

    def _reader(self, who: int) -> Reader:
        return self.readers[who % len(self.readers)]

    def _is_there(self, reader: Reader, count: int) -> bool:
        """Whether `count` elements can be read; a reader that was overtaken goes to the end."""
        if count > self.capacity:
            return False  # which is refused before anything is looked at
        if len(self.written) + self.scribbled - reader.at > self.capacity:
            reader.at, reader.held = len(self.written), None
            return False
        return count <= len(self.written) - reader.at

    def _check(self, reader: Reader, found: list[int]) -> None:
        """Nothing of what the writer is about to overwrite."""
        assert found == self.written[reader.at :][: len(found)]


TestSynchronizedQueue = SynchronizedQueue.TestCase
TestUnsynchronizedQueue = UnsynchronizedQueue.TestCase
TestSynchronizedQueue.settings = TestUnsynchronizedQueue.settings = EXAMPLES
