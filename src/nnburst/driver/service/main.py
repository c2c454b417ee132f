"""Runs the driver process from its command line, and writes its log lines to stderr.

`nnburst.launch` and `nnburst serve` start it; users do not call it directly. A driver that is restarted after
a crash should be found at once, so it takes its name first and then imports its modules: a client that
connects meanwhile waits in the backlog, and is not refused.

Peers cause most log lines, so no text of a peer may forge a line or fill a disk: control characters are
escaped, long lines are cut, and a supervisor and its workers together write only a few lines of one kind in
each period. A line never contains bytes of a tensor, constant or packet.
"""

from __future__ import annotations

import getopt
import importlib
import logging
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from nnburst.control.address import Listener, check_length, socket_path
from nnburst.fmq.cores import prefer_performance_cores
from nnburst.hal.environment import DRIVERS, LOG, check, warn_of_unknown_names
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import UINT32_MAX, UINT64_MAX
from nnburst.hal.utils import (
    AUTO,
    OPTIONED,
    chosen_executor,
    device_name,
    fill_standard_descriptors,
    takes_options,
)
from nnburst.hal.vlog import one_line

#: Most lines of one kind that are written in one period.
_LINES: Final = 5
_PERIOD: Final = 60.0
#: Size of the table of kinds; messages are constants of the code, so there are far fewer kinds.
_KINDS: Final = 256
#: Most lines of a traceback.
_TRACEBACK: Final = 100


def configure_logging(name: str, level: str) -> None:
    """Log to stderr from here on.

    Args:
        name: the driver's name, part of every line.
        level: name of a level of `logging`.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(f"nnburst driver {name}[%(process)d]: %(message)s"))
    handler.addFilter(RepetitionFilter())
    logging.basicConfig(level=level, handlers=[handler])


class OneLineFormatter(logging.Formatter):
    """Escapes control characters in messages, and cuts long messages; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line without traceback."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 - logging's
        """The traceback, escaped: an exception may contain a peer's text."""
        lines = super().formatException(ei).split("\n")
        if len(lines) > _TRACEBACK:
            left_out = f"… ({len(lines) - _TRACEBACK} lines)"
            lines = [*lines[: _TRACEBACK // 2], left_out, *lines[-_TRACEBACK // 2 :]]
        return "\n".join(map(one_line, lines))


class _Kind(NamedTuple):
    """The count of lines of one kind.

    Attributes:
        key: key of the kind, never 0.
        began: start of the period.
        written: lines written in the period.
        left_out: lines left out in the period.
    """

    key: int
    began: float
    written: int
    left_out: int


class _Kinds:
    """A table of kinds that forked processes share.

    It has no lock, since a process could die or be stopped with it: two lines of the same moment may be
    counted as one. Every worker can write to the table, so its numbers are only compared.
    """

    _ROW: ClassVar = struct.Struct("<QdII")

    def __init__(self) -> None:
        self._table = mmap.mmap(-1, _KINDS * self._ROW.size)  # MAP_SHARED

    def find(self, key: int) -> tuple[int, _Kind]:
        """The kind and its place: an empty place if it is new, another kind's place if all are taken."""
        for step in range(_KINDS):
            place = (key + step) % _KINDS * self._ROW.size
            kind = _Kind(*self._ROW.unpack_from(self._table, place))
            if kind.key in (0, key):
                return place, kind
        place = key % _KINDS * self._ROW.size
        return place, _Kind(*self._ROW.unpack_from(self._table, place))

    def put(self, place: int, kind: _Kind) -> None:
        """Store a changed count."""
        self._ROW.pack_into(self._table, place, *kind)


class RepetitionFilter(logging.Filter):
    """Lets a few lines of each kind pass in a period, and counts those that it left out. Thread-safe.

    Lines are of one kind if they have the same message in the code, with any arguments. Processes that are
    forked after this was made count together.
    """

    def __init__(
        self,
        lines: int = _LINES,
        period: float = _PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let `lines` of a kind pass in `period` seconds of `clock`, which all processes share."""
        super().__init__()
        self._lines = lines
        self._period = period
        self._clock = clock
        # Reentrant: the garbage collector may run here, and a finalizer may log.
        self._lock = threading.RLock()
        self._kinds = _Kinds()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line."""
        # Forked processes have the same hash seed.
        key = hash((record.name, record.levelno, str(record.msg))) & UINT64_MAX or 1
        now = self._clock()
        left_out = 0
        with self._lock:
            place, kind = self._kinds.find(key)
            if not kind.key or not 0 <= now - kind.began < self._period:
                left_out = kind.left_out
                kind = _Kind(kind.key or key, now, 0, 0)
            if kind.written >= self._lines:
                self._kinds.put(place, kind._replace(left_out=min(kind.left_out + 1, UINT32_MAX)))
                return False
            self._kinds.put(place, kind._replace(written=kind.written + 1))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like it were left out)"
            record.args = None
        return True


#: The options; one that ends in "=" is followed by its value.
_OPTIONS: Final = (
    "executor=", "name=", "fd=", "serve=", "cpus=", "extension=", "any-user", "until-stdin-ends",
    "share-weights=", "front=", "json=", "model=", "shape=", "state=", "largest=",
    "option=", "device-node=", "realtime=", "lock-memory", "exclusive",
)  # fmt: skip
#: Options about networks, whose order on the command line matters.
_OF_MODELS: Final = ("--model", "--shape", "--state", "--largest")
_SHARING: Final = ("user", "all", "off")


class Options:
    """The options of the command line. They are parsed here, since argparse would take 5 ms of each start.

    Attributes:
        executor: the executor's name; "auto" for the one that can run the networks of `models`.
        name: the device's name; the executor's unless given.
        fd: connected socket of the only client; -1 if `serve` is given.
        serve: name or path to listen at; empty if `fd` is given.
        cpus: cores to run on.
        realtime: priority of workers under SCHED_FIFO; None for none.
        lock_memory: whether workers lock their memory.
        extensions: vendor extensions in addition to those of entry points, each as `module:attribute`.
        any_user: whether to serve clients of other users, too.
        until_stdin_ends: whether to end with standard input.
        share_weights: "user", "all" or "off"; see `nnburst serve --help`.
        front: command-line words of an additional front, as JSON; empty for none.
        models: options of the networks to serve by name, in order: `--model` with `NAME[@VERSION]=FILE`, and
            `--shape` with `INPUT=1,3,…` for the network before it.
        options: options of an executor in C, each as `key=value`.
        device_nodes: paths that workers may open for writing and send ioctls.
        exclusive: whether one process owns the device of all workers.
        json: file that receives the driver's address when it listens.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Read `words`.

        Raises:
            SystemExit: a word is not a valid option of a driver; the message names it.
        """
        try:
            pairs, rest = getopt.getopt(list(words), "", list(_OPTIONS))
            given = {option.removeprefix("--"): value for option, value in pairs}
            self.executor = given.get("executor", "")
            self.name = given.get("name", "") or device_name(self.executor)
            self.fd = _number("fd", given.get("fd", "-1"))
            self.serve = given.get("serve", "")
            self.cpus = [_number("cpus", cpu) for cpu in given.get("cpus", "").split(",") if cpu]
            self.realtime = _number("realtime", given["realtime"]) if "realtime" in given else None
            self.lock_memory = "lock-memory" in given
            self.extensions = [value for option, value in pairs if option == "--extension"]
            self.options = [value for option, value in pairs if option == "--option"]
            self.device_nodes = [value for option, value in pairs if option == "--device-node"]
            self.exclusive = "exclusive" in given
            self.any_user = "any-user" in given
            self.until_stdin_ends = "until-stdin-ends" in given
            self.share_weights = given.get("share-weights", _SHARING[0])
            self.front = given.get("front", "")
            self.models = [pair for pair in pairs if pair[0] in _OF_MODELS]
            self.json = Path(given["json"]) if "json" in given else None
            self._check(rest, has_no_address=given.get("serve") == "")
        except (getopt.GetoptError, ValueError) as error:
            raise SystemExit(f"python -m nnburst.driver: {error}") from None

    def _check(self, rest: Sequence[str], *, has_no_address: bool) -> None:
        if rest:
            raise ValueError(f"{rest[0]!r} is not an option")
        if has_no_address:
            raise ValueError("--serve: '', expected a name or a path")
        if not self.executor:
            raise ValueError("--executor is missing")
        if self.options and not takes_options(self.executor):
            raise ValueError(
                f"--option {self.options[0]}: executor {self.executor} takes no options,"
                f" expected one in a shared library, or one of {', '.join(sorted(OPTIONED))}"
            )
        if (self.fd < 0) == (not self.serve):
            raise ValueError("expected either --fd or --serve")
        if self.exclusive and not self.serve:
            raise ValueError(
                "--exclusive: a driver of one client is its device's only owner anyway"
            )
        if self.share_weights not in _SHARING:
            raise ValueError(f"--share-weights {self.share_weights}, expected one of {_SHARING}")


def _number(option: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"--{option} {word}: expected a number") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client is gone (`--fd`; does not return) or until SIGTERM (`--serve`).

    Args:
        argv: the words of the command line; those of this process unless given.
    """
    fill_standard_descriptors()
    options = Options(sys.argv[1:] if argv is None else argv)
    configure_logging(options.executor, "WARNING")
    listener: Listener | None = None
    try:
        logging.getLogger().setLevel(LOG.read())
        check(DRIVERS)
        if options.serve:
            warn_of_unknown_names()
            listener = _claim(options.serve, any_user=options.any_user)
        _install(options)
    except (NnburstError, OSError) as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        if listener is not None:
            listener.close()
        return 1
    if options.cpus:
        os.sched_setaffinity(0, options.cpus)
    else:
        prefer_performance_cores()
    _import_msgspec()
    if listener is None:
        _serve_one(options)
        return 0
    try:
        interrupted = _serve(listener, options)
    except KeyboardInterrupt:  # before it serves
        listener.close()
        interrupted = True
    except (NnburstError, OSError) as error:  # no executor, no network, too few descriptors
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - likewise
        listener.close()
        return 1
    if interrupted:
        print("nnburst: interrupted", file=sys.stderr)  # noqa: T201 - as the commands do
        return 130
    return 0


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions and `inspect`, which saves three milliseconds.

    Without typing_extensions, msgspec takes the three names that it needs from `typing`.
    """
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("msgspec")
        finally:
            del sys.modules["typing_extensions"]


def _claim(address: str, *, any_user: bool) -> Listener:
    path = check_length(Path(address)) if "/" in address else socket_path(address, create=True)
    return Listener.claim(path, any_user=any_user)


def _install(options: Options) -> None:
    """Set options that this process and its forks need before one of them makes an executor."""
    if options.extensions:
        from nnburst.executor.graph.extension import install_from

        for target in options.extensions:
            install_from(target)
    if options.options:
        from nnburst.driver.executors import set_options

        set_options(options.options)
    if options.realtime is not None or options.lock_memory:
        from nnburst.driver.confinement import ask_for_realtime

        ask_for_realtime(options.realtime, options.lock_memory)
    if options.device_nodes:
        from nnburst.driver.confinement import admit_nodes

        admit_nodes(options.device_nodes)


def _serve_one(options: Options) -> None:
    # Ctrl-C in a terminal reaches every process; only the client decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A client that ignores the ends of its children would have this process not learn of its own.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(options.fd, False)
    _close_beyond_limit()
    from nnburst.driver.executors import begin_executor, import_engine

    begun = begin_executor(options.executor)
    from nnburst.driver.service.worker import Admission, serve_client

    import_engine(options.executor)
    begun()  # what it has found out is noted while this process may write
    serve_client(
        lambda: Admission(socket.socket(fileno=options.fd)), options.executor, options.name
    )


def _close_beyond_limit() -> None:
    """Close the descriptors at or beyond their limit: posix_spawn could not, as the client lowered it."""
    limit = os.sysconf("SC_OPEN_MAX")
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names alone
    except OSError:  # no /proc
        return
    for fd in found:
        if fd >= limit:
            os.close(fd)


def _serve(listener: Listener, options: Options) -> bool:
    import json

    from nnburst.driver.executors import begin_executor

    # As in `_serve_one`: what an executor tries first is a child, too.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    executor = options.executor
    if executor != AUTO:
        begin_executor(executor)
    from nnburst.driver.served_models import engine_of_all, read_networks
    from nnburst.driver.service.child_supervisors import (
        FrontSupervisor,
        OwnerSupervisor,
        WeightsSupervisor,
    )
    from nnburst.driver.service.supervisor import Supervisor

    networks = read_networks(options.models, with_front=bool(options.front))
    if executor == AUTO:
        executor = chosen_executor(engine_of_all(networks) or AUTO)
        begin_executor(executor)
    weights: WeightsSupervisor | None = None
    owner = OwnerSupervisor(executor) if options.exclusive else None
    if options.share_weights != "off" and owner is None:  # whose process has them once
        weights = WeightsSupervisor(executor, across_users=options.share_weights == "all")
    front = FrontSupervisor(listener.path, json.loads(options.front)) if options.front else None
    supervisor = Supervisor(
        listener,
        executor,
        options.serve,
        any_user=options.any_user,
        front=front,
        until_stdin_ends=options.until_stdin_ends,
        weights=weights,
        owner=owner,
        networks=networks,
    )
    supervisor.prepare()
    return supervisor.run(lambda: _announce(listener.path, executor, options.json))


def _announce(path: Path, executor: str, file: Path | None) -> None:
    """Announce that clients can connect: on stdout, and machine-readable in `file` ("-" is stdout)."""
    import json  # a driver of one client has no use for it

    facts = json.dumps({"address": str(path), "executor": executor, "pid": os.getpid()})
    if file is not None and str(file) != "-":
        file.write_text(facts + "\n")
    text = f"{executor} listens at {path} (pid {os.getpid()})"
    print(facts if str(file) == "-" else text, flush=True)  # noqa: T201
