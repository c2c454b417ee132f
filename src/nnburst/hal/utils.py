"""Helps every layer to check arguments, close objects, start threads, report scarce resources, fill tables.

It also finds the Python that runs this package, makes commands for more such processes and decides when they
are started again. It reads the features of the processors, and decides whether to trust the environment,
which names of executors are paths of libraries, and which executor runs by default.

A setuid program has rights that its caller lacks, and the caller wrote its environment. So all settings of
this package are read from `os.environ` only through this module, and Python processes that such a program
starts see neither that environment nor the caller's folders.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import errno
import functools
import importlib
import importlib.util
import logging
import math
import operator
import os
import select
import struct
import sys
import sysconfig
import threading
import time
import weakref
from _queue import SimpleQueue  # `queue` imports more than that
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import (
    Any,
    ClassVar,
    Final,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    SupportsIndex,
    TypeVar,
)

from nnburst.hal.errors import Closed, InvalidArgument, NnburstError, ResourceExhausted

logger = logging.getLogger(__name__)


class NotPicklable:
    """Refuses to be pickled or copied, and names the alternative."""

    __slots__ = ()

    #: The alternative, for the end of the message.
    _instead: ClassVar[str] = "make one in the other process"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to its process and can be neither pickled nor copied;"
            f" {self._instead}"
        )


class Closing(NotPicklable):
    """Closes itself at the end of a `with` block. Subclasses define `close`, and twice is fine."""

    __slots__ = ()

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


P = ParamSpec("P")
E = TypeVar("E")


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """A function that calls `method` as long as its object exists, to which it refers weakly."""
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        alive = reference()
        if alive is not None:
            alive(*args, **kwargs)

    return call


class OneTimeEvent:
    """An event that is set once and stays set. Thread-safe; a signal handler may raise anywhere in a wait.

    `threading.Event` and `threading.Condition` take their lock in a function of Python's. A handler that
    raises at its end, as Ctrl-C does, leaves the lock taken, and then the thread that sets the event waits
    for ever. Here each wait has a lock of its own, which no one else takes.
    """

    __slots__ = ("_is_set", "_waits")

    def __init__(self) -> None:
        """Begin unset."""
        self._is_set = False
        self._waits: Final[set[threading.Lock]] = set()

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all who wait for it. Twice is fine."""
        self._is_set = True  # first: who begins to wait from now on sees it
        with contextlib.suppress(KeyError):
            while True:
                self._waits.pop().release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds, without a limit if it is None; returns whether the event is set."""
        if self._is_set:
            return True
        wait = threading.Lock()
        wait.acquire()
        self._waits.add(wait)
        try:
            if not self._is_set:
                wait.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))
        finally:
            self._waits.discard(wait)
        return self._is_set


class DaemonThread:
    """Runs a function on a thread that does not keep its process from ending. Thread-safe.

    `threading.Thread.start` returns only when the new thread runs, after two switches between threads: a
    tenth of the time to open a burst, on each side. `threading.enumerate` does not list a `DaemonThread`.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        """Start the thread; an exception of `run` is passed to `threading.excepthook`.

        Raises:
            ResourceExhausted: the process may have no more threads.
        """
        self._ended: Final = OneTimeEvent()
        try:
            _thread.start_new_thread(_run_daemon, (run, self._ended))
        except RuntimeError as error:
            raise ResourceExhausted(f"cannot start the thread: {error}") from error

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the thread has ended; returns whether it has."""
        return self._ended.wait(timeout)


def _run_daemon(run: Callable[[], None], ended: OneTimeEvent) -> None:
    # Debuggers, coverage and profilers see this thread as they see those of `threading`.
    if (trace := threading.gettrace()) is not None:
        sys.settrace(trace)
    if (profile := threading.getprofile()) is not None:
        sys.setprofile(profile)
    try:
        run()
    except BaseException:  # as in a thread of `threading`
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
    finally:
        ended.set()


#: Too few descriptors of the process or the machine, too little memory, too many processes or threads.
_SCARCE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ENOSPC}
)


class Scarce:
    """A context for calls that need descriptors, memory or processes: `with Scarce("cannot connect"): ...`.

    Raises:
        ResourceExhausted: the kernel lacks the resources that the calls need. Other errors stay as they are.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        """Create the context; messages begin with `what`, the thing that cannot be done."""
        self._what: Final = what

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Replace an error about scarce resources by ResourceExhausted."""
        if (
            isinstance(error, OSError)
            and not isinstance(error, NnburstError)
            and error.errno in _SCARCE
        ):
            raise ResourceExhausted(f"{self._what}: {error.strerror}") from error


#: Seconds until the kernel may have memory again.
_SCARCE_PAUSE: Final = 0.001


def polled(poller: select.poll, milliseconds: float | None) -> list[tuple[int, int]]:
    """Poll for events until the time is up; returns early, without events, if the kernel lacks memory."""
    try:
        return poller.poll(milliseconds)
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        time.sleep(_SCARCE_PAUSE)
        return []


def is_readable(fd: int) -> bool:
    """Whether something is there to read, an end or an error included; of a pidfd, the end of its process."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def is_number(found: object) -> bool:
    """Whether an object is a real number of any type, such as numpy's."""
    # The types of nearly all numbers first: the look for others takes 0.4 µs.
    return type(found) is float or type(found) is int or isinstance(found, Real)


def as_float(number: float) -> float:
    """Convert a number of any type to a float; the largest one for an integer beyond that."""
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max


def check_integer(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> int:
    """Check that a value is an integer of any type, such as numpy's, but no bool; returns it as an int.

    Raises:
        InvalidArgument: it is not, or not from `least` to `most`; the message names the argument `name`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        wanted = "an integer" if math.isinf(least) else f"{least} to {most}"
        raise InvalidArgument(f"{name} is {value!r}, expected {wanted}")
    return number


def check_integers(
    name: str, values: Iterable[object], least: float = -math.inf, most: float = math.inf
) -> tuple[int, ...]:
    """Check a list of integers, each as `check_integer` does, and return it.

    Raises:
        InvalidArgument: it is no list, or not of such integers.
    """
    return tuple(
        check_integer(f"{name}[{at}]", value, least, most)
        for at, value in enumerate(listed(name, values))
    )


def listed(name: str, given: Iterable[E]) -> tuple[E, ...]:
    """The elements of a list, or of another iterable that is no single thing such as a text.

    Raises:
        InvalidArgument: it is not one; the message names the argument `name`.
    """
    try:
        if not isinstance(given, str | bytes | os.PathLike | Mapping):
            return tuple(given)
    except TypeError:
        pass
    raise InvalidArgument(f"{name}: {given!r}, expected a list")


def is_text(found: object) -> bool:
    """Whether an object is a text that the kernel takes, as a path or a word: encodable, and without NUL."""
    try:
        return isinstance(found, str) and "\0" not in found and os.fsencode(found) is not None
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def check_path(name: str, path: str | os.PathLike[str]) -> str:
    """Check that a path is one, and return it as a text.

    Raises:
        InvalidArgument: it is no path, empty, or cannot be encoded; the message names the argument `name`.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not text or not is_text(text):
        raise InvalidArgument(f"{name} is {path!r}, expected a path")
    return text


def lasting_path(path: str) -> str:
    """The path from the root on: it means the same when the program has another working directory."""
    try:
        return str(Path(path).absolute())
    except OSError:  # the working directory was removed
        return path


class _Closes(Protocol):
    """An object that a thread will own and close."""

    def close(self) -> None:
        """Release its resources."""


def start_thread(thread: threading.Thread, *owned: _Closes) -> None:
    """Start a thread that will own some objects; if it does not start, they are closed in this order.

    If a signal handler raises in this call, it is unknown whether the thread runs. So the thread owns the
    objects as soon as it runs; the caller owns them only if it never runs.

    Raises:
        ResourceExhausted: the process may have no more threads, or no memory is left for its stack.
    """
    try:
        thread.start()
    except RuntimeError as error:
        for one in owned:
            one.close()
        raise ResourceExhausted(f"cannot start the thread {thread.name!r}: {error}") from error


class ReadyThread(threading.Thread):
    """A daemon thread that is started ahead and waits for the function that it runs. Thread-safe.

    Starting a thread takes some 0.2 ms, with a switch to it and back; one that waits begins at once.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Raises:
            ResourceExhausted: the process may have no more threads, or no memory is left for its stack.
        """
        super().__init__(name=name, daemon=True)
        self._work: Final[SimpleQueue[Callable[[], None]]] = SimpleQueue()
        start_thread(self)

    def begin(self, work: Callable[[], None]) -> None:
        """Run `work` on the thread. Called once."""
        self._work.put(work)

    def run(self) -> None:
        """Wait for `begin`, and run its function."""
        self._work.get()()


_ENDING: Final = threading.Event()


@functools.cache
def note_end() -> None:
    """Have `failure_level` notice the program's end; call this when a finalizer that runs then exists.

    Exit handlers run in the reverse order of their registration, so this one runs before all finalizers.
    """
    atexit.register(_ENDING.set)


def failure_level() -> int:
    """The level for logging a failure that the program does not notice: WARNING; DEBUG at the program's end.

    Devices that were not closed are closed then, while daemon threads may still use them.
    """
    return logging.DEBUG if _ENDING.is_set() else logging.WARNING


def check_owner(owner: int, what: str) -> None:
    """Refuse a forked child: memory of its parent is not mapped there, and a lock may be held for ever.

    Args:
        owner: number of the process that made the object.
        what: the object, for the message.

    Raises:
        Closed: this is another process.
    """
    if os.getpid() != owner:
        raise Closed(f"{what} belongs to process {owner}, which forked")


#: AT_SECURE of <elf.h>: the kernel sets it for a program with rights that its caller lacks.
_AT_SECURE: Final = 23
#: The only variables that a privileged process passes on.
_FIXED: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


# -- Interpreters: which Python runs here, how it starts others, whether the environment is trusted


def interpreter() -> str:
    """The path of the Python that runs this process, to start more processes of this package.

    That is `sys.executable`, unless another program embeds Python. In that case `sys.executable` is the first
    `python3` on PATH, which may have another version; so the Python of the same prefix is returned, if any.
    """
    if sys.executable and _is_own(sys.executable):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for prefix in (sys.exec_prefix, sys.base_exec_prefix):
        found = Path(prefix, "bin", name)
        if os.access(found, os.X_OK, effective_ids=True):
            return str(found)
    return sys.executable


def _is_own(program: str) -> bool:
    try:
        return Path(program).samefile("/proc/self/exe")
    except OSError:
        return False  # there is no such file, or no /proc: the prefix has the same Python


def python_command(*words: str) -> list[str]:
    """A command that runs this Python with `words`; it imports nothing from the working directory (`-P`).

    In a privileged process the new one runs isolated (`-I`), without `PYTHON…` variables and the user's
    packages; so this package must lie where the interpreter looks by itself.
    """
    return [interpreter(), "-I" if is_privileged() else "-P", *words]


#: Exit status of a process that cannot do its work, for example because its address is in use.
REFUSED: Final = 1
#: Longest pause in seconds before a process that has ended is started again.
LONGEST_PAUSE: Final = 5.0
_FIRST_PAUSE: Final = 0.05
#: Seconds that a process must have run to count as one that could do its work.
SETTLED: Final = 0.5


class RestartPauses:
    """Finds the pauses before a process is started again.

    A process that could do its work is started again at once; after others the pauses double.
    """

    def __init__(self) -> None:
        """Begin with the shortest pause."""
        self._pause = 0.0

    def after(self, code: int, seconds: float) -> float:
        """Seconds until the next start, after a process that ran for `seconds` and ended with `code`."""
        failed = code == REFUSED or seconds < SETTLED
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), LONGEST_PAUSE) if failed else 0.0
        return self._pause


def fill_standard_descriptors() -> None:
    """Open /dev/null as those of the descriptors 0 to 2 that are closed, also for processes started later.

    Libraries in C write to 1 and 2 even if a socket has that number. Call this before anything opens a
    descriptor.
    """
    for wanted in range(3):
        try:
            os.fstat(wanted)
        except OSError:
            # `open` gives the lowest number that is free, which is the wanted one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def inherited_environment() -> dict[str, str]:
    """The environment for new processes of this package; a privileged process passes on almost nothing."""
    return dict(_FIXED if is_privileged() else os.environ)


def driver_environment() -> dict[str, str]:
    """This process's environment, changed so that a driver finds this copy of the package and no other.

    `PYTHONPATH` stays in it, since users name their executors as `module:attribute`. A setuid program passes
    on no variable of its caller; its drivers find the package where their interpreter looks by itself.
    """
    if is_privileged():
        return inherited_environment()
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    root = str(Path(__file__).parents[2])
    if root not in sysconfig.get_paths().values():
        others = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{others}" if others else root
    return environment


@functools.cache
def is_privileged() -> bool:
    """Whether this program got rights that its caller lacks: setuid, setgid or capabilities of its file.

    The kernel decides this (AT_SECURE) when it starts the program; it does not change later.
    """
    try:
        words = Path("/proc/self/auxv").read_bytes()
    except OSError:  # no /proc, or not for a process that must not be looked into
        import ctypes  # takes longer than all the rest of this module

        get = ctypes.CDLL(None).getauxval
        get.argtypes, get.restype = (ctypes.c_ulong,), ctypes.c_ulong
        return bool(get(_AT_SECURE))
    return bool(dict(struct.iter_unpack("@LL", words)).get(_AT_SECURE, 0))


def believed_environment() -> Mapping[str, str]:
    """This process's environment; empty in a privileged one, whose caller has written it."""
    return {} if is_privileged() else os.environ


def home() -> Path:
    """The home directory of this process's user; in a privileged one that of the user whose rights it has.

    Raises:
        RuntimeError: it is unknown.
    """
    if not is_privileged():
        return Path.home()
    import pwd

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise RuntimeError(f"user {os.geteuid()} has no entry among the users") from None


def temporary_folder() -> Path:
    """The folder for temporary files, by `TMPDIR` and the like, which a privileged process ignores.

    It is /tmp if no such folder can be written to: nothing is found there, and nothing can be made there.
    """
    usual = Path("/tmp")  # noqa: S108 - what is made there is made exclusively, or its owner is checked
    if is_privileged():
        return usual
    import tempfile  # 5 ms that a launched driver, which has no address, does not pay

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return usual


K = TypeVar("K")
F = TypeVar("F")


def executor_library(name: str) -> Path | None:
    """The path of an executor's library: an ELF file, with "/" or ".so" in its name; None for other names."""
    if not ("/" in name or name.endswith(".so")):
        return None
    path = Path(name)
    try:
        if not path.is_file():  # a socket among others
            return None
        with path.open("rb") as file:
            return path.resolve() if file.read(4) == b"\x7fELF" else None
    except OSError:
        return None


#: Executors with an engine, the best first, and the module that the executor's extra installs.
ENGINES: Final = {"litert": "ai_edge_litert", "onnxruntime": "onnxruntime"}
#: Stands for the name of the best executor that is installed.
AUTO: Final = "auto"
_REFERENCE: Final = "reference"
#: The warning if the reference executor computes a network because no engine is installed.
NO_ENGINE: Final = (
    "no engine is installed, so the reference executor computes this network, about a hundred times as slowly"
    " as LiteRT: pip install 'nnburst[litert]'"
)


def has_engine(executor: str) -> bool:
    """Whether the module of one of `ENGINES` is installed. Nothing is imported."""
    found = importlib.util.find_spec(ENGINES[executor])
    return found is not None and found.origin is not None  # a folder of that name has none


def chosen_executor(name: str = AUTO) -> str:
    """Return `name`, or for "auto" the best installed executor: litert, else onnxruntime, else reference.

    Raises:
        InvalidArgument: `name` is no string, or empty.
    """
    if not name or not is_text(name):
        raise InvalidArgument(
            f"executor: {name!r}, expected a name, module:attribute or a library's path"
        )
    if name != AUTO:
        return name
    return next(filter(has_engine, ENGINES), _REFERENCE)


@functools.cache
def _warn_of_reference() -> None:
    logger.warning(NO_ENGINE)


def warn_of_reference(model: object) -> None:
    """Log a warning, once, that no engine is installed, if the reference executor gets a network from a file.

    Args:
        model: the model for the reference executor; a result of `nnburst.load` has `operators`.
    """
    if getattr(model, "operators", ()) and chosen_executor() == _REFERENCE:
        _warn_of_reference()


#: Executors of this package that take options of the service.
OPTIONED: Final = frozenset({"litert", "onnxruntime", "openvino"})


def takes_options(executor: str) -> bool:
    """Whether an executor takes options of the service: one in a library, or one of OPTIONED."""
    return executor in OPTIONED or executor_library(executor) is not None


def device_name(executor: str) -> str:
    """The default name of an executor's device: foo for libfoo.so."""
    if executor_library(executor) is None:
        return executor
    return Path(executor).name.split(".")[0].removeprefix("lib")


def processor_features() -> bytes:
    """The processors' reported features; engines choose their kernels and weight formats by these."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    wanted = (b"flags", b"Features", b"model name", b"CPU part")
    return b"\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def registers(table: dict[K, F], *keys: K) -> Callable[[F], F]:
    """Make a decorator that adds a function to `table` under each of `keys`.

    Raises:
        ValueError: one of the keys is in it already; the decorator raises it.
    """

    def register(function: F) -> F:
        for key in keys:
            if key in table:
                raise ValueError(f"{key!r} is registered twice")
            table[key] = function
        return function

    return register


def import_extra(module: str, user: str, package: str, extra: str) -> Any:  # noqa: ANN401 - any module
    """Import a module of a package that is installed with an extra.

    Args:
        module: the module.
        user: what needs it, for the message.
        package: the package, as pip calls it.
        extra: nnburst's extra that brings it.

    Raises:
        ModuleNotFoundError: the package is missing, with pip's line; or one that it needs itself.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFoundError(
            f"{user} needs the package {package}: pip install 'nnburst[{extra}]'", name=error.name
        ) from error


def import_modules_of(package: str, path: Sequence[str]) -> None:
    """Import every module of a package, in the order of their names.

    pkgutil finds modules in archives, too, and takes three milliseconds and `inspect` for that.

    Args:
        package: the package's name.
        path: the package's folders.
    """
    files = {file for folder in path for file in os.listdir(folder)}  # noqa: PTH208 - names alone
    for file in sorted(files):
        name, _, suffix = file.partition(".")
        if suffix == "py" and name != "__init__":
            importlib.import_module(f"{package}.{name}")
