"""The driver process: `python -m nnburst.driver --executor NAME (--fd N | --serve ADDRESS)`.

Started by `nnburst.launch` and by `nnburst serve`; not meant to be typed. A driver that is started again
after a crash is to be found at once, so it takes its name first and imports what it needs to serve then:
who connects meanwhile waits in the backlog, and is not refused.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnburst.control.address import check_length, socket_path
from nnburst.driver.limits.logs import configure_logging
from nnburst.driver.service.listener import Listener
from nnburst.driver.service.options import Options
from nnburst.fmq.cores import prefer_performance_cores
from nnburst.hal.environment import DRIVERS, LOG, check, warn_of_unknown_names
from nnburst.hal.errors import NnburstError


def main(argv: Sequence[str] | None = None, *, imported: Callable[[], None] = lambda: None) -> int:
    """Serve until the client is gone (`--fd`; does not return) or until SIGTERM (`--serve`).

    Args:
        argv: the words of the command line, unless they are this process's own.
        imported: called once what serving takes is imported.
    """
    options = Options(sys.argv[1:] if argv is None else argv)
    configure_logging(options.executor, "WARNING")
    listener: Listener | None = None
    try:
        logging.getLogger().setLevel(LOG.read())
        check(DRIVERS)
        if options.serve:
            warn_of_unknown_names()
            listener = _claim(options.serve, any_user=options.any_user)
        _install(options.extensions)
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
        _serve_one(options, imported)
    else:
        _serve(listener, options, imported)
    return 0


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions: three milliseconds, with `inspect` behind it.

    It takes three names from there that `typing` has as well, if there is no such module.
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


def _install(extensions: Sequence[str]) -> None:
    if extensions:
        from nnburst.executor.graph.extension import install_from

        for target in extensions:
            install_from(target)


def _serve_one(options: Options, imported: Callable[[], None]) -> None:
    # Ctrl-C in a terminal reaches every process; only the client decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A client that ignores the ends of its children would have this process not learn of its own.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(options.fd, False)
    from nnburst.driver.executors import begin_executor, import_engine

    begun = begin_executor(options.executor)
    from nnburst.driver.service.admission import Admission
    from nnburst.driver.service.worker import serve_client

    import_engine(options.executor)
    begun()  # what it has found out is noted while this process may write
    imported()
    serve_client(
        lambda: Admission(socket.socket(fileno=options.fd)), options.executor, options.name
    )


def _serve(listener: Listener, options: Options, imported: Callable[[], None]) -> None:
    import json

    from nnburst.driver.executors import begin_executor

    # As in `_serve_one`: what an executor tries first is a child, too.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begin_executor(options.executor)
    from nnburst.driver.service.front_keeper import FrontKeeper
    from nnburst.driver.service.supervisor import Supervisor
    from nnburst.driver.service.weights_keeper import WeightsKeeper

    weights: WeightsKeeper | None = None
    if options.share_weights != "off":
        weights = WeightsKeeper(options.executor, across_users=options.share_weights == "all")
    front = FrontKeeper(listener.path, json.loads(options.front)) if options.front else None
    supervisor = Supervisor(
        listener,
        options.executor,
        options.serve,
        any_user=options.any_user,
        front=front,
        until_stdin_ends=options.until_stdin_ends,
        weights=weights,
    )
    supervisor.prepare()
    imported()
    _announce(listener.path, options.executor, options.json)
    supervisor.run()


def _announce(path: Path, executor: str, file: Path | None) -> None:
    """Announce that clients may come: on stdout, for machines in `file` ("-" is stdout)."""
    import json  # a driver of one client has no use for it

    facts = json.dumps({"address": str(path), "executor": executor, "pid": os.getpid()})
    if file is not None and str(file) != "-":
        file.write_text(facts + "\n")
    text = f"{executor} listens at {path} (pid {os.getpid()})"
    print(facts if str(file) == "-" else text, flush=True)  # noqa: T201
