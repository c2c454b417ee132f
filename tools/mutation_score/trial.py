"""The process that trials are forked from; run by its path, with a socket's number, a way and tests.

cold    everything but the package under test is imported; a trial imports, collects and runs.
warm    the tests are collected; a trial puts the changed code into the functions that are there, and runs.

It reads one request a line and answers each with one line. A trial is a process group of its own, which is
gone when its answer is sent. Nothing of nnburst is imported here: only trials may, from the private copy.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

#: Outcomes of a trial besides those of pytest: it ran past its limit; the change cannot be put in warm.
TIMED_OUT: Final = 100
MUST_BE_COLD: Final = 101

#: Address space of a trial: a changed size shall not take the machine's memory.
_MOST_BYTES: Final = 16 << 30
_OPTIONS: Final = (
    "-x",
    "-q",
    *("-p", "no:cacheprovider", "-n0", "--basetemp=basetemp"),
    # hypothesis is imported before pytest looks for what to rewrite; nothing of it needs that.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
#: What takes long to import and is the same for every trial.
_HEAVY: Final = (
    "numpy",
    "hypothesis",
    "hypothesis.extra.numpy",
    "msgspec",
    "cffi",
    "_cffi_backend",
)

Request = dict[str, Any]


class _Report:
    """A pytest plugin that selects tests in the order given, and notes the first that fails."""

    def __init__(self, tests: list[str] | None) -> None:
        self._tests = tests
        self.failed = ""
        self.seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._tests is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[test] for test in self._tests if test in found]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"collecting {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed = self.failed or report.nodeid


class _Tracer:
    """A pytest plugin that notes which test executes which line of the files in some folders."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders
        self._files: dict[str, bool] = {}
        self._test = ""
        #: test -> file -> lines; the empty test is what importing and collecting execute.
        self.lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def start(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = ""

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:  # noqa: ANN401
        file = frame.f_code.co_filename
        wanted = self._files.get(file)
        if wanted is None:
            wanted = self._files[file] = file.startswith(self._folders)
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401
        if event == "line":
            self.lines[self._test][frame.f_code.co_filename].add(frame.f_lineno)
        return self._line


def _run_cold(request: Request) -> int:
    tests = request["tests"]
    report = _Report(tests)
    plugins: list[object] = [report]
    if request.get("trace"):
        tracer = _Tracer(tuple(request["trace"]))
        tracer.start()
        plugins.append(tracer)
    else:
        sys.dont_write_bytecode = True
    where = request["paths"] if tests is None else sorted({test.split("::")[0] for test in tests})
    status = pytest.main([*_OPTIONS, *where], plugins=plugins)
    result: dict[str, object] = {"failed": report.failed, "seconds": report.seconds}
    if request.get("trace"):
        sys.settrace(None)
        result["lines"] = {
            test: {file: sorted(lines) for file, lines in files.items()}
            for test, files in tracer.lines.items()
        }
    Path(request["result"]).write_text(json.dumps(result), encoding="utf-8")
    return int(status)


class _Warm:
    """A pytest plugin that, instead of running the collected tests, serves."""

    def __init__(self, connection: socket.socket, folder: str) -> None:
        self._connection = connection
        self._folder = folder

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions = _Functions(self._folder)
        items = {item.nodeid: item for item in session.items}
        report = _Report(None)
        session.config.pluginmanager.register(report)

        def run(request: Request) -> int:
            if not all(functions.change(file) for file in request["changed"]):
                return MUST_BE_COLD
            tests = items if request["tests"] is None else request["tests"]
            selected = [items[test] for test in tests]
            for item, following in zip(selected, [*selected[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    break
            result = {"failed": report.failed, "seconds": report.seconds}
            Path(request["result"]).write_text(json.dumps(result), encoding="utf-8")
            return 1 if session.testsfailed else 0

        _serve(self._connection, run)
        return True


class _Functions:
    """The functions of the package that exist, by file; each can be given the code of a changed file."""

    def __init__(self, folder: str) -> None:
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(folder):
                self._functions[found.__code__.co_filename].append(found)
        self._codes = {file: _codes(file) for file in self._functions}

    def change(self, file: str) -> bool:
        """Give every function of `file` the code that stands there now; False if that is not possible.

        Functions are found again by name, those of one name by their order.
        """
        if file not in self._codes:
            return False
        old, new = self._codes[file], _codes(file)
        for function in self._functions[file]:
            name, line = function.__code__.co_qualname, function.__code__.co_firstlineno
            lines = [code.co_firstlineno for code in old[name]]
            if lines.count(line) != 1 or len(lines) != len(new[name]):
                return False
            try:
                function.__code__ = new[name][lines.index(line)]
            except ValueError:  # it uses other variables of the function around it than before
                return False
        return True


def _codes(file: str) -> dict[str, list[CodeType]]:
    """Name of a function -> the codes of that name in a file, in the order of the text."""
    codes: dict[str, list[CodeType]] = defaultdict(list)

    def add(code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                codes[inner.co_qualname].append(inner)
                add(inner)

    add(compile(Path(file).read_text(encoding="utf-8"), file, "exec"))
    return codes


def _serve(connection: socket.socket, run: Callable[[Request], int]) -> None:
    """Run each request that comes in a process of its own, until the connection ends."""
    with connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            request = json.loads(line)
            started = time.monotonic()
            status = _fork(request, run)
            reply = {"status": status, "seconds": time.monotonic() - started}
            stream.write(json.dumps(reply) + "\n")
            stream.flush()


def _fork(request: Request, run: Callable[[Request], int]) -> int:
    """The outcome of a trial: pytest's, minus a signal's number, or `TIMED_OUT`."""
    child = os.fork()
    if child == 0:
        status = 3  # pytest: an internal error
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
            status = run(request)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    watch = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([watch], [], [], request["limit"])
    finally:
        os.close(watch)
    with suppress(
        ProcessLookupError, PermissionError
    ):  # it has not yet its group, or none any more
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else TIMED_OUT


def main(argv: list[str]) -> int:
    """Serve `WAY FD FOLDER TESTS...` until the socket ends."""
    way, number, folder, *paths = argv
    for name in _HEAVY:
        with suppress(ImportError):  # tests of a package that does not need it
            importlib.import_module(name)
    with socket.socket(fileno=int(number)) as connection:
        connection.set_inheritable(False)
        if way == "cold":
            _serve(connection, _run_cold)
            return 0
        sys.dont_write_bytecode = True
        return int(pytest.main([*_OPTIONS, *paths], plugins=[_Warm(connection, folder)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
