"""Runs contestants in turn for many rounds, watches the machine meanwhile, and draws distributions of times.

Ratios are taken within a round of short blocks, so that the machine is in the same state for both. The load
and the stolen time of the machine are recorded during a measurement. A drawing is an SVG or PNG file, or SVG
text for an HTML page.
"""

from __future__ import annotations

import gc
import io
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nnburst.bench.cases import Contestant, Samples

_STAT: Final = Path("/proc/stat")
#: Columns of a line in /proc/stat: name, then user, nice, system, idle, iowait, irq, softirq, steal.
_STEAL: Final = 8
#: Shares of one core, stolen or used by other processes, above which figures are doubtful.
_STOLEN: Final = 0.02
_OTHERS: Final = 0.10
#: Clock sources that a process can read without a system call.
_QUICK_CLOCKS: Final = ("tsc", "arch_sys_counter")
#: The name of the governor that keeps the frequency constant.
_STEADY: Final = "performance"
UNKNOWN: Final = "unknown"

#: Greatest duration of a block in nanoseconds; a virtual machine's cores may be moved after that.
_BLOCK_NS: Final = 4_000_000
ROUNDS: Final = 41
#: Number of exchanges that are timed singly, over all rounds.
_SAMPLES: Final = 20_000
#: Least number of them in each round, so that one that lost the core does not change the median.
_FEWEST_SAMPLES: Final = 3
#: Factor of an engine's time: a hundredth more is not attributed to the burst.
_SHARE: Final = 1.01
#: Warm-up: number of blocks for a median, the share by which it falls while the warm-up continues, and the
#: greatest multiple of the requested time.
_GROUP: Final = 5
_FALL: Final = 0.02
_LONGEST: Final = 10


def stolen_seconds() -> float:
    """Seconds stolen from all cores together since boot, mostly in steps of a hundredth."""
    return stolen_ticks(_STAT.read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")


def stolen_ticks(stat: str) -> int:
    """The stolen time in ticks, from /proc/stat; 0 for a kernel that does not count it."""
    first = stat.partition("\n")[0].split()
    return int(first[_STEAL]) if len(first) > _STEAL and first[0] == "cpu" else 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a machine during a measurement.

    Attributes:
        load_before: load average over a minute at the beginning.
        load_after: load average over a minute at the end.
        stolen_share: share of one core that the host has stolen.
        others_share: share of one core that other processes have used.
        clock_source: clock source of the kernel.
        governor: governor of the cores' frequency; "unknown" if the kernel does not show it.
    """

    load_before: float
    load_after: float
    stolen_share: float
    others_share: float
    clock_source: str
    governor: str

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the figures; empty without any."""
        found = []
        if self.stolen_share > _STOLEN:
            found.append(f"the host took {self.stolen_share:.0%} of a core")
        if self.others_share > _OTHERS:
            found.append(f"other processes took {self.others_share:.0%} of a core")
        if self.clock_source not in (*_QUICK_CLOCKS, UNKNOWN):
            found.append(f"the clock source {self.clock_source} is slow to read")
        if self.governor not in (_STEADY, UNKNOWN):
            found.append(f"the governor {self.governor} changes the cores' frequency")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {**asdict(self), "doubts": list(self.doubts)}

    def __str__(self) -> str:
        """A line of text, and one for each doubt."""
        line = (
            f"machine: load {self.load_before:.2f} before and {self.load_after:.2f} after,"
            f" {self.stolen_share:.1%} of a core stolen, {self.others_share:.1%} by other processes,"
            f" clock source {self.clock_source}, governor {self.governor}"
        )
        return "\n".join([line, *(f"  not quiet: {doubt}" for doubt in self.doubts)])


class Watch:
    """Observes the machine from its creation on."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began = time.perf_counter()
        self._stolen = stolen_seconds()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def conditions(self) -> Conditions:
        """The conditions until now. The time of children counts as this process's when they have ended."""
        wall = max(time.perf_counter() - self._began, 1e-3)
        busy = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return Conditions(
            load_before=self._load,
            load_after=os.getloadavg()[0],
            stolen_share=max(0.0, (stolen_seconds() - self._stolen) / wall),
            others_share=max(0.0, busy / wall),
            clock_source=_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor=_governor(),
        )


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float:
    """Seconds in which cores were busy since boot (proc(5): user, nice, system, irq, softirq)."""
    words = _STAT.read_text(encoding="ascii").partition("\n")[0].split()
    if words[0] != "cpu" or len(words) < 8:
        return 0.0
    ticks = [int(word) for word in words[1:8]]
    return sum(ticks[n] for n in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def _governor() -> str:
    found = Counter(
        _text(str(path))
        for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    )
    return ", ".join(sorted(found)) or UNKNOWN


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip() or UNKNOWN
    except OSError:
        return UNKNOWN


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Measured:
    """The durations of one contestant.

    Attributes:
        name: name of the case.
        blocks: mean nanoseconds of an exchange in each round.
        samples_by_round: nanoseconds of single exchanges in each round.
        wall_s: elapsed seconds of all of them.
        stolen_s: seconds that the host has stolen from all cores together meanwhile.
    """

    name: str
    blocks: list[float] = field(default_factory=list)
    samples_by_round: list[Samples] = field(default_factory=list)
    wall_s: float = 0.0
    stolen_s: float = 0.0

    @property
    def samples(self) -> Samples:
        """Nanoseconds of all single exchanges."""
        return np.concatenate(self.samples_by_round)

    @property
    def mean_ns(self) -> float:
        """Median over the rounds of a block's mean."""
        return float(np.median(self.blocks))

    @property
    def typical(self) -> list[float]:
        """The median of the single exchanges of each round, which a lost time slice does not change."""
        return [float(np.median(samples)) for samples in self.samples_by_round]

    @property
    def median_ns(self) -> float:
        """Median of all single exchanges."""
        return float(np.median(self.samples))

    @property
    def undisturbed_ns(self) -> float:
        """The duration of an undisturbed exchange: the tenth percentile of single exchanges.

        If the host gives the second thread of a core to another guest for milliseconds at a time, most
        exchanges may be disturbed, and medians then show how much each contestant was disturbed.
        """
        return self.percentile(10)

    def undisturbed_beyond(self, other: Measured) -> float:
        """Undisturbed nanoseconds minus 1.01 times the other's."""
        return self.undisturbed_ns - _SHARE * other.undisturbed_ns

    def percentile(self, share: float) -> float:
        """A percentile of single exchanges."""
        return float(np.percentile(self.samples, share))

    def tail_ratio(self) -> float:
        """Median over the rounds of 99th percentile to median; cores do not move within a round."""
        pairs = [np.percentile(samples, [99, 50]) for samples in self.samples_by_round]
        return float(np.median([high / middle for high, middle in pairs]))

    def ratio_to(self, other: Measured) -> float:
        """Median of the per-round ratios."""
        return float(np.median(np.asarray(self.blocks) / np.asarray(other.blocks)))

    def typical_ratio_to(self, other: Measured) -> float:
        """Median of the per-round ratios of typical exchanges."""
        return float(np.median(np.asarray(self.typical) / np.asarray(other.typical)))

    def typical_difference_to(self, other: Measured) -> float:
        """Median of the per-round differences of typical exchanges, in nanoseconds."""
        return float(np.median(np.asarray(self.typical) - np.asarray(other.typical)))

    def typical_beyond(self, other: Measured) -> float:
        """Median of the per-round differences from 1.01 times the other's typical exchange, in ns."""
        return float(np.median(np.asarray(self.typical) - _SHARE * np.asarray(other.typical)))

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "name": self.name,
            "mean_ns": round(self.mean_ns, 1),
            "median_ns": round(self.median_ns, 1),
            "p99_ns": round(self.percentile(99), 1),
            "p999_ns": round(self.percentile(99.9), 1),
            "per_second": round(1e9 / self.mean_ns),
            "blocks_ns": [round(block, 1) for block in self.blocks],
            "typical_ns": [round(typical, 1) for typical in self.typical],
            "stolen_share": round(self.stolen_s / self.wall_s, 4) if self.wall_s else 0.0,
        }


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The runs before the first round.

    Attributes:
        seconds: duration in seconds.
        rounds: number of rounds.
        unsettled: contestants whose last blocks were still faster than those before.
    """

    seconds: float
    rounds: int
    unsettled: tuple[str, ...] = ()


def run_rounds(
    contestants: Sequence[Contestant],
    rounds: int = ROUNDS,
    progress: Callable[[], None] = lambda: None,
    *,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Measured]:
    """Run all contestants in turn, `rounds` times, and time single exchanges in between.

    Args:
        contestants: the cases.
        rounds: least number of blocks of each.
        progress: called after each round.
        seconds: least duration; further rounds follow until then.
        clock: returns seconds.
    """
    measured = {c.name: Measured(c.name) for c in contestants}
    counts = {c.name: _block_size(c) for c in contestants}
    until = clock() + seconds
    turn = 0
    gc.collect()
    gc.disable()
    try:
        while turn < rounds or clock() < until:
            for contestant in _in_turn(contestants, turn):
                _run(contestant, counts[contestant.name], rounds, measured[contestant.name])
            turn += 1
            progress()
    finally:
        gc.enable()
    return measured


def warm_up(
    contestants: Sequence[Contestant],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> WarmUp:
    """Run all contestants in turn for `seconds`, and then until none becomes faster, at most tenfold.

    A contestant still becomes faster while the median of its last five blocks is more than 2 % below that
    of the five before.
    """
    if not seconds:
        return WarmUp(0.0, 0)
    counts = {c.name: _block_size(c) for c in contestants}
    began = clock()
    blocks: dict[str, list[float]] = {c.name: [] for c in contestants}
    unsettled: tuple[str, ...] = ()
    turn = 0
    while (passed := clock() - began) < seconds or unsettled:
        if passed >= _LONGEST * seconds:
            break
        for contestant in _in_turn(contestants, turn):
            blocks[contestant.name].append(contestant.block(counts[contestant.name]))
        turn += 1
        unsettled = tuple(name for name, found in blocks.items() if is_falling(found))
    return WarmUp(clock() - began, turn, unsettled)


def is_falling(blocks: Sequence[float]) -> bool:
    """Whether the latest blocks are still faster than those before, or are too few to decide."""
    if len(blocks) < 2 * _GROUP:
        return True
    before, now = blocks[-2 * _GROUP : -_GROUP], blocks[-_GROUP:]
    return float(np.median(now)) < (1 - _FALL) * float(np.median(before))


def _in_turn(contestants: Sequence[Contestant], turn: int) -> Sequence[Contestant]:
    """The contestants forwards or backwards, so that each follows different ones."""
    return contestants if turn % 2 == 0 else contestants[::-1]


def _run(contestant: Contestant, count: int, rounds: int, measured: Measured) -> None:
    """Run one block, and the round's share of single exchanges."""
    began, stolen = time.perf_counter(), stolen_seconds()
    measured.blocks.append(contestant.block(count))
    share = max(_FEWEST_SAMPLES, min(count, _SAMPLES // rounds))
    measured.samples_by_round.append(contestant.samples(share))
    measured.wall_s += time.perf_counter() - began
    measured.stolen_s += stolen_seconds() - stolen


def _block_size(contestant: Contestant) -> int:
    """The number of exchanges that fill a block."""
    trial = max(1, min(20, int(_BLOCK_NS / contestant.block(1))))
    each = min(contestant.block(trial) for _ in range(3))
    return max(1, min(20_000, int(_BLOCK_NS / each)))


#: Number of colours in matplotlib's cycle.
_COLOURS: Final = 10
_DASHES: Final = ("solid", "dashed", "dotted", "dashdot")


def plot_distributions(measured: Sequence[Measured], path: Path) -> None:
    """Draw the cumulative distribution of the exchanges' times, one line for each case.

    Raises:
        ImportError: matplotlib is not installed (extra `cli`).
        OSError: the file cannot be written.
    """
    draw_distributions(measured).savefig(path)


def draw_distributions(
    measured: Sequence[Measured], size: tuple[float, float] = (9, 5.5)
) -> Figure:
    """Draw the cumulative distributions as a figure; `size` is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    for number, case in enumerate(measured):
        samples = np.sort(case.samples) / 1000
        shares = np.arange(1, len(samples) + 1) / len(samples) * 100
        axes.step(samples, shares, where="post", label=case.name, **line_of(number))
    axes.set_xscale("log")
    axes.set_xlabel("round trip, microseconds (one clock reading included)")
    axes.set_ylabel("exchanges that took at most so long, %")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    return figure


def line_of(number: int) -> dict[str, Any]:
    """Colour and dash of a case; the first forty are all different."""
    dash, colour = divmod(number, _COLOURS)
    return {"color": f"C{colour}", "linestyle": _DASHES[dash % len(_DASHES)]}


def as_svg(figure: Figure, title: str) -> str:
    """Convert a figure to an SVG element for an HTML page, with a title for screen readers.

    Names inside the element begin with `title`, so that a page can have several.
    """
    from xml.sax.saxutils import escape

    import matplotlib as mpl

    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    _, _, element = written.getvalue().partition("<svg")
    word = re.sub(r"\W", "-", title)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{word}-", element)
    start, _, rest = element.partition(">")
    return f'<svg role="img"{start}><title>{escape(title)}</title>{rest}'
