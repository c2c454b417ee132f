"""Declares the `NNBURST_…` variables of the environment: name, values, default, reader and page of each.

Code reads a variable by its object here (`POLLING_WINDOW.read()`), so the error for an invalid value names
the variable. `nnburst env` lists the variables, and docs/environment.md is generated from them. A program
with rights that its caller lacks (AT_SECURE: setuid, setgid, capabilities of its file) ignores all of them.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import believed_environment

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PREFIX: Final = "NNBURST_"
_all: Final[dict[str, Variable[Any]]] = {}


class Variable(Generic[T]):
    """A variable of the environment.

    Attributes:
        name: its name with the prefix.
        default: the text of the default value; None if there is no fixed default.
        expected: the rule for its value, for messages.
        reader: the part of nnburst that reads it, and when.
        what: its effect.
        page: the page of docs/ with more about it; empty without one.
        is_for_users: whether it is for programs that use nnburst, and not for its tests and builds.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[str], T],
        expected: str,
        default: str | None,
        *,
        reader: str,
        what: str,
        page: str = "",
        is_for_users: bool = True,
    ) -> None:
        """Create a variable and add it to the registry.

        Args:
            name: its name without the prefix.
            parse: converts the text to a value; raises ValueError if it breaks the rule.
            expected: the rule for its value.
            default: a valid text, or None.
            reader: the part of nnburst that reads it, and when.
            what: its effect.
            page: the page of docs/ with more about it.
            is_for_users: whether it is for programs that use nnburst.
        """
        self.name = _PREFIX + name
        self._parse = parse
        self.expected = expected
        self.default = default
        self.reader = reader
        self.what = what
        self.page = page
        self.is_for_users = is_for_users
        _all[self.name] = self

    @property
    def is_set(self) -> bool:
        """Whether it is set in this process's environment; False in a setuid program, which ignores it."""
        return self.name in believed_environment()

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """The value in `environ` (this process's unless given), or the default.

        Raises:
            InvalidArgument: the value breaks the rule, or it is unset and has no default.
        """
        text = (believed_environment() if environ is None else environ).get(self.name, self.default)
        if text is None:
            raise InvalidArgument(f"{self.name} is not set, expected {self.expected}")
        try:
            return self._parse(text)
        except ValueError:
            raise InvalidArgument(f"{self.name} is {text!r}, expected {self.expected}") from None


def variables() -> tuple[Variable[Any], ...]:
    """All variables, in the order of docs/environment.md."""
    return tuple(_all.values())


def check(reader: str) -> None:
    """Read all variables of a reader.

    Raises:
        InvalidArgument: a value breaks its rule.
    """
    for variable in variables():
        if variable.reader == reader:
            variable.read()


def unknown_names(environ: Mapping[str, str] | None = None) -> list[str]:
    """A log line for each variable of the environment that begins with NNBURST_ and is not declared here."""
    set_there = believed_environment() if environ is None else environ
    lines = []
    for name in sorted(set_there):
        if name.startswith(_PREFIX) and name not in _all:
            import difflib  # imported late: only needed after a typing mistake

            near = difflib.get_close_matches(name, _all, 1)
            meant = f"did you mean {near[0]}?" if near else "`nnburst env` lists those that count"
            lines.append(f"{name} is set and means nothing: {meant}")
    return lines


@functools.cache
def warn_of_unknown_names() -> None:
    """Log the lines of `unknown_names`, once in a process."""
    for line in unknown_names():
        logger.warning("%s", line)


def known_tags(text: str) -> frozenset[str]:
    """The tags that a value of NNBURST_VLOG turns on: its words that are tags, or all for `1` or `all`."""
    words = frozenset(_words(text))
    return frozenset(TAGS) if words & _EVERYTHING else words & frozenset(TAGS)


def unknown_tags(text: str) -> list[str]:
    """A log line for the words of a value of NNBURST_VLOG that turn nothing on; empty without such words.

    The original reads no word behind the one that turns on every tag.
    """
    wanted = itertools.takewhile(lambda word: word not in _EVERYTHING, _words(text))
    unknown = ", ".join(repr(word) for word in wanted if word not in TAGS)
    return [f"{VLOG.name}: {unknown} left out, expected {VLOG.expected}"] if unknown else []


def _words(text: str) -> list[str]:
    """The words of a value of NNBURST_VLOG, between spaces, commas or colons."""
    return re.split(r"[ ,:]", text) if text else []


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return parse


def _switch(text: str) -> bool:
    return _one_of("0", "1")(text) == "1"


def _level(text: str) -> str:
    return _one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")(text.upper())


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return parse


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _path(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text)


def _pattern_text(rule: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(rule, text):
            raise ValueError(text)
        return text

    return parse


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        raise ValueError(text) from None


def _engines(text: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs of a device's name and its executor."""
    pairs = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, executor = entry.partition("=")
        if not name or (equals and not executor):
            raise ValueError(text)
        pairs.append((name, executor or name))
    return tuple(pairs)


_SWITCH: Final = "0 or 1"
_COUNT: Final = "a whole number from 1 to 1000000000"
_count: Final = _whole(1, 1_000_000_000)
_SECONDS: Final = "seconds, a number above 0"

#: Readers that check all their variables at once.
DRIVERS: Final = "a driver, at start"
FRAMEWORK: Final = "the framework, once, when its manager is made"
_BUILD: Final = "`csrc/build.py`"
_FAULTS: Final = "`tests/faults`"

LOG: Final = Variable(
    "LOG",
    _level,
    "DEBUG, INFO, WARNING, ERROR or CRITICAL",
    "WARNING",
    reader="the command line and drivers, at start",
    what="level from which on log lines go to stderr; `nnburst -v` goes before it; libneuralnetworks.so, too,"
    " which is silent unless it is set",
)
#: Topics of verbose logs, in the order of the original's bits.
TAGS: Final = ("model", "compilation", "execution", "cpuexe", "manager", "driver", "memory")
_EVERYTHING: Final = frozenset({"1", "all"})
VLOG: Final = Variable(
    "VLOG",
    str,
    f"words of {', '.join(TAGS)}, or all",
    "",
    reader="every process, at start",
    what="topics to log in detail on stderr, between spaces, commas or colons (NNAPI: `debug.nn.vlog`)",
    page="tracing.md",
)
GRAPH_DIR: Final = Variable(
    "GRAPH_DIR",
    _path,
    "a folder",
    None,
    reader="the framework and clients, when a model is finished or prepared",
    what="where pictures of models and plans are written, for Graphviz",
    page="tracing.md",
)
POLLING_WINDOW: Final = Variable(
    "BURST_SERVER_POLLING_WINDOW",
    _whole(0, 60_000_000),
    "whole microseconds, 0 to 60000000",
    "50",
    reader=DRIVERS,
    what="microseconds to spin for the next request before a rhythm is known; 0 never spins"
    " (NNAPI: `debug.nn.sample-driver-burst-polling-window`)",
)
CLIENT_POLLING_WINDOW: Final = Variable(
    "BURST_CONTROLLER_POLLING_WINDOW",
    _whole(0, 59_999_999),
    "whole microseconds, 0 to 59999999",
    "200",
    reader="clients, once, at the first burst that is opened without `spin_window`",
    what="microseconds that a client's burst spins for a result before it sleeps; 0 never spins"
    " (NNAPI: `debug.nn.burst-conrtoller-polling-window`)",
)
SANDBOX: Final = Variable(
    "SANDBOX",
    _switch,
    _SWITCH,
    "1",
    reader=DRIVERS,
    what="0 leaves workers out of the sandbox, for executors that need more",
    page="security.md",
)
SYNCEXEC_HAL: Final = Variable(
    "SYNCEXEC_HAL",
    _switch,
    _SWITCH,
    "1",
    reader="clients, once, at the first `PreparedModel.execute`",
    what="0 executes by an asynchronous call and a notification (NNAPI: `debug.nn.syncexec-hal`)",
)
LITERT_ROUTE: Final = Variable(
    "LITERT_ROUTE",
    _one_of("library", "interpreter"),
    "library or interpreter",
    "library",
    reader="the litert executor, at start",
    what="`interpreter` takes the wheel's Interpreter instead of its C library",
)
LITERT_THREADS: Final = Variable(
    "LITERT_THREADS",
    _whole(1, 1024),
    "a whole number from 1 to 1024",
    "1",
    reader="the litert executor, at start",
    what="threads of each engine if `prepare` is given no `num_threads`, at most one for each core",
)
ONNXRUNTIME_PROVIDER: Final = Variable(
    "ONNXRUNTIME_PROVIDER",
    str,
    "a provider of the installed onnxruntime",
    "CPU",
    reader="the onnxruntime executor, at start",
    what="what executes graphs (`nnburst serve --provider`), by onnxruntime's name without"
    " `ExecutionProvider`; clients never choose it",
)
ONNXRUNTIME_THREADS: Final = Variable(
    "ONNXRUNTIME_THREADS",
    _whole(1, 1024),
    "a whole number from 1 to 1024",
    "1",
    reader="the onnxruntime executor, at start",
    what="threads of each session if `prepare` is given no `num_threads`",
)
OPENVINO_DEVICE: Final = Variable(
    "OPENVINO_DEVICE",
    _pattern_text(r"[A-Z]+[A-Za-z0-9_.:,()-]*"),
    "a device of the installed OpenVINO, such as CPU, GPU or NPU",
    "CPU",
    reader="the openvino executor, at start",
    what="what executes networks (`--option device=…`); clients never choose it",
    page="openvino.md",
)
OPENVINO_THREADS: Final = Variable(
    "OPENVINO_THREADS",
    _whole(1, 1024),
    "a whole number from 1 to 1024",
    "1",
    reader="the openvino executor, at start",
    what="threads of each network on the CPU if `prepare` is given no `num_threads` (`--option threads=…`)",
    page="openvino.md",
)
OPENVINO_PROFILE: Final = Variable(
    "OPENVINO_PROFILE",
    _switch,
    _SWITCH,
    "0",
    reader="the openvino executor, at start",
    what="1 reports the sum of a run's nodes as time on the device, which costs some time of every run"
    " (`--option profile=1`)",
    page="openvino.md",
)
#: The variables that built-in executors read when their drivers start, by the executor's name.
OF_EXECUTORS: Final[dict[str, tuple[Variable[Any], ...]]] = {
    "litert": (LITERT_ROUTE, LITERT_THREADS),
    "onnxruntime": (ONNXRUNTIME_PROVIDER, ONNXRUNTIME_THREADS),
    "openvino": (OPENVINO_DEVICE, OPENVINO_THREADS, OPENVINO_PROFILE),
}
DEVICES: Final = Variable(
    "DEVICES",
    _engines,
    "names of executors, each with a name of its own if that is wanted (NAME=EXECUTOR), between commas",
    "auto",
    reader=FRAMEWORK,
    what="installed executors that are devices without a driver that runs: each is launched by the first"
    " compilation that asks it; those that are not installed are left out. `auto` is the best one that is"
    " installed, and lets `nnburst.compile` try the other ones on whole models",
    page="framework.md",
)
PARTITION: Final = Variable(
    "PARTITION",
    _whole(0, 2),
    "0, 1 or 2",
    "1",
    reader=FRAMEWORK,
    what="0 places all on the CPU, 1 on the best devices with the CPU behind them, 2 without it"
    " (NNAPI: `debug.nn.partition`)",
    page="framework.md",
)
CPUONLY: Final = Variable(
    "CPUONLY",
    _switch,
    _SWITCH,
    "0",
    reader=FRAMEWORK,
    what="1 leaves the CPU as the only device (NNAPI: `debug.nn.cpuonly`)",
    page="framework.md",
)
ENABLED_DEVICES: Final = Variable(
    "ENABLED_DEVICES",
    _pattern,
    "a regular expression",
    ".*",
    reader=FRAMEWORK,
    what="devices whose whole name does not match are left out; the CPU stays (NNAPI:"
    " `debug.nn.enabled-devices`)",
    page="framework.md",
)
STRICT_SLICING: Final = Variable(
    "STRICT_SLICING",
    _switch,
    _SWITCH,
    "0",
    reader=FRAMEWORK,
    what="1 makes it an error that a slice for an older driver is not valid (NNAPI:"
    " `debug.nn.strict-slicing`)",
    page="framework.md",
    is_for_users=False,
)
SYNCEXEC_RUNTIME: Final = Variable(
    "SYNCEXEC_RUNTIME",
    _switch,
    _SWITCH,
    "0",
    reader=FRAMEWORK,
    what="1 lets `Execution.start` compute before it returns (NNAPI: `debug.nn.syncexec-runtime`)",
    page="framework.md",
)
SYNCEXEC_CPU: Final = Variable(
    "SYNCEXEC_CPU",
    _switch,
    _SWITCH,
    "1",
    reader=FRAMEWORK,
    what="0 computes on the device nnapi-reference by a thread of its own each time, which is joined (NNAPI:"
    " `debug.nn.syncexec-cpu`)",
    page="framework.md",
)
REFUSE_HALF: Final = Variable(
    "REFUSE_HALF",
    _switch,
    _SWITCH,
    "0",
    reader=FRAMEWORK,
    what="1 drops a pseudo-random half of what devices named sample… support, so that plans have several"
    " steps (NNAPI: `debug.nn.sample.supported`)",
    page="framework.md",
    is_for_users=False,
)
CPU_DRIVER: Final = Variable(
    "CPU_DRIVER",
    _switch,
    _SWITCH,
    "0",
    reader=FRAMEWORK,
    what="1 puts the device nnapi-reference into a driver, so that a crash there is not the program's",
    page="framework.md",
)
EXTENSIONS_ALLOWLIST: Final = Variable(
    "EXTENSIONS_ALLOWLIST",
    _path,
    "a file",
    "/etc/nnburst/extensions_allowlist",
    reader="the framework, once, when a model first uses an extension",
    what="which programs may use vendor extensions, one path or name of a Python module a line; without"
    " the file all may (NNAPI: `nnapi_extensions_app_allowlist`)",
    page="framework.md",
)
PYTHON: Final = Variable(
    "PYTHON",
    _path,
    "an interpreter, or the folder of an environment",
    None,
    reader="libneuralnetworks.so, at the first call",
    what="the Python behind the C interface; without it: the file `libneuralnetworks.python` beside the"
    " library, then `VIRTUAL_ENV`, then the environment that the library is installed in",
    page="c_interface.md",
)
EXECUTION_COUNTS: Final = Variable(
    "EXECUTION_COUNTS",
    _path,
    "a folder",
    None,
    reader="libneuralnetworks.so, at the first call",
    what="where `PID.json` has how often each device has executed, and how much of what drivers support ran"
    " on them (`make cts` adds them up)",
    page="c_interface.md",
    is_for_users=False,
)
SHARED: Final = Variable(
    "SHARED",
    _path,
    "a folder",
    "../shared",
    reader="tests, `nnburst bench capabilities`",
    what="where the reference data lie; tests that read them skip without",
    is_for_users=False,
)
KILLS: Final = Variable(
    "KILLS",
    _count,
    _COUNT,
    "3",
    reader=f"{_FAULTS}, the suites for drivers",
    what="processes killed in each test (10 in the suites and in a short campaign, 100 in `make faults`)",
    page="testing_drivers.md",
    is_for_users=False,
)
RAY: Final = Variable(
    "RAY",
    _switch,
    "0 or 1",
    "0",
    reader="tests/ray_hosts",
    what="1 lets the tests of `nnburst.ray` start a cluster of two nodes, which takes half a minute",
    page="ray.md",
    is_for_users=False,
)
STOPPED: Final = Variable(
    "STOPPED",
    _seconds,
    _SECONDS,
    "0.1",
    reader=_FAULTS,
    what="seconds that a client or worker is stopped each time",
    is_for_users=False,
)
CLIENTS: Final = Variable(
    "CLIENTS",
    _count,
    _COUNT,
    "2",
    reader=_FAULTS,
    what="clients that take all of their quotas at once",
    page="quotas.md",
    is_for_users=False,
)
STRICT_TIMING: Final = Variable(
    "STRICT_TIMING",
    _switch,
    _SWITCH,
    "0",
    reader=f"{_FAULTS}, `tests/client`",
    what="1 asserts times, which only a quiet machine keeps (`make faults STRICT=1`)",
    page="promises.md",
    is_for_users=False,
)
SOAK: Final = Variable(
    "SOAK",
    _seconds,
    _SECONDS,
    "20",
    reader="`tests/testing/test_soak.py`",
    what="seconds of mixed load in a campaign",
    is_for_users=False,
)
STRESS: Final = Variable(
    "STRESS",
    _seconds,
    _SECONDS,
    "6",
    reader="`tests/testing/test_stress.py`",
    what="seconds of each profile of `nnburst stress` in a campaign (60 in `make campaign`)",
    is_for_users=False,
)
RUNS: Final = Variable(
    "RUNS",
    _count,
    _COUNT,
    "50",
    reader="`tests/executor`",
    what="executions of each of two bursts at once, and of each operation on memory that changes under it",
    is_for_users=False,
)
RECORDS: Final = Variable(
    "RECORDS",
    _count,
    _COUNT,
    "100000",
    reader="`tests/fmq`",
    what="records with checksums that go through a queue in each way (10,000,000 in `make campaign`)",
    is_for_users=False,
)
RANDOM_CALLS: Final = Variable(
    "RANDOM_CALLS",
    _count,
    _COUNT,
    "5000",
    reader="`tests/capi`, `tests/c_client`, `tests/litert_delegate`",
    what="calls of the C interface in random order; a quarter as many of the client in C, a network per 125",
    is_for_users=False,
)
ANDROID_HEADERS: Final = Variable(
    "ANDROID_HEADERS",
    _path,
    "a folder",
    None,
    reader="`tests/capi`",
    what="Android's NeuralNetworks.h, which our header is compared with",
    is_for_users=False,
)
LIVES: Final = Variable(
    "LIVES",
    _count,
    _COUNT,
    "4",
    reader="`tests/client/test_life_cycle.py`",
    what="random lives of drivers and what hangs on them",
    is_for_users=False,
)
EXAMPLES: Final = Variable(
    "EXAMPLES",
    _count,
    _COUNT,
    "20",
    reader="tests",
    what="random examples of each property (100 in `make campaign SHORT=1`)",
    is_for_users=False,
)
PAIRS: Final = Variable(
    "PAIRS",
    _count,
    _COUNT,
    "50",
    reader="tests, the suites for drivers",
    what="pairs of operations of each type, in up to seven graphs each (all pairs in `make campaign`)",
    page="testing_drivers.md",
)
CORPUS: Final = Variable(
    "CORPUS",
    _path,
    "a folder",
    None,
    reader="`csrc/tests/fuzz/run.sh`",
    what="where libFuzzer's inputs that reach something new are kept",
    is_for_users=False,
)
EMULATED: Final = Variable(
    "EMULATED",
    _switch,
    _SWITCH,
    "0",
    reader="a driver that is served, when it starts",
    what="1 lets it fork although it has a second thread, which is the emulator's (`make arm64`)",
    is_for_users=False,
)
TRAPS: Final = Variable(
    "TRAPS",
    _switch,
    _SWITCH,
    "0",
    reader=_BUILD,
    what="1 builds the C module with the points of `csrc/trap.h`, for tests",
    is_for_users=False,
)
TRAP: Final = Variable(
    "TRAP",
    str,
    "POINT:N",
    None,
    reader="a C module built with `NNBURST_TRAPS`",
    what="`POINT:N`: the process kills itself when it is there for the N-th time",
    is_for_users=False,
)
TRACE: Final = Variable(
    "TRACE",
    _path,
    "a socket's path",
    None,
    reader="clients and drivers, when they start",
    what="the socket of a collector of traces, which `nnburst trace` sets",
    page="tracing.md",
    is_for_users=False,
)
TRACE_MARKER: Final = Variable(
    "TRACE_MARKER",
    _path,
    "a file's path",
    None,
    reader="processes that record a trace, when they start",
    what="the kernel's trace_marker, which `nnburst trace --marker` sets",
    page="tracing.md",
    is_for_users=False,
)
TRACE_POINTS: Final = Variable(
    "TRACE_POINTS",
    _switch,
    _SWITCH,
    "1",
    reader=_BUILD,
    what="0 builds the C module without the marks of `csrc/trace.h`, for comparison",
    is_for_users=False,
)
SANITIZE: Final = Variable(
    "SANITIZE",
    str,
    "sanitizers as gcc names them",
    None,
    reader=_BUILD,
    what="sanitizers to build the C module with: `address,undefined` or `thread`",
    is_for_users=False,
)
