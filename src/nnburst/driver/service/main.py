"""The driver process: `python -m nnburst.driver --executor NAME (--fd N | --serve ADDRESS)`.

Started by `nnburst.launch` and by `nnburst serve`; not meant to be typed. A driver that is started again
after a crash is to be found at once, so it takes its name first and imports what it needs to serve then:
who connects meanwhile waits in the backlog, and is not refused.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from nnburst.control.address import check_length, socket_path
from nnburst.driver.limits.logs import configure_logging
from nnburst.driver.service.listener import Listener
from nnburst.fmq.cores import prefer_performance_cores
from nnburst.hal.environment import DRIVERS, LOG, check, warn_of_unknown_names
from nnburst.hal.errors import NnburstError


def main(argv: Sequence[str] | None = None, *, imported: Callable[[], None] = lambda: None) -> int:
    """Serve until the client is gone (`--fd`; does not return) or until SIGTERM (`--serve`).

    Args:
        argv: the words of the command line, unless they are this process's own.
        imported: called once what serving takes is imported.
    """
    args = _parser().parse_args(argv)
    configure_logging(args.executor, "WARNING")
    listener: Listener | None = None
    try:
        logging.getLogger().setLevel(LOG.read())
        check(DRIVERS)
        if args.serve is not None:
            warn_of_unknown_names()
            listener = _claim(args.serve, any_user=args.any_user)
        _install(args.extension)
    except (NnburstError, OSError) as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - the reader needs no traceback
        if listener is not None:
            listener.close()
        return 1
    if args.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in args.cpus.split(",")})
    else:
        prefer_performance_cores()
    if listener is None:
        _serve_one(args, imported)
    else:
        _serve(listener, args, imported)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nnburst.driver")
    parser.add_argument("--executor", required=True)
    parser.add_argument("--name", default="", help="of the device (default: the executor's)")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="connected socket of the only client")
    where.add_argument("--serve", metavar="ADDRESS", help="name or path to listen at")
    parser.add_argument("--cpus", default="", help="cores to run on, comma-separated")
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="a vendor extension to have beside those of entry points",
    )
    parser.add_argument("--any-user", action="store_true", help="serve clients of other users too")
    parser.add_argument("--until-stdin-ends", action="store_true", help="end with standard input")
    parser.add_argument(
        "--share-weights", choices=("user", "all", "off"), default="user", help="see `serve --help`"
    )
    parser.add_argument(
        "--front", default="", metavar="JSON", help="serve by a front, too, with these words"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write where it listens")
    return parser


def _claim(address: str, *, any_user: bool) -> Listener:
    path = check_length(Path(address)) if "/" in address else socket_path(address, create=True)
    return Listener.claim(path, any_user=any_user)


def _install(extensions: Sequence[str]) -> None:
    if extensions:
        from nnburst.executor.graph.extension import install_from

        for target in extensions:
            install_from(target)


def _serve_one(args: argparse.Namespace, imported: Callable[[], None]) -> None:
    # Ctrl-C in a terminal reaches every process; only the client decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A client that ignores the ends of its children would have this process not learn of its own.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.set_inheritable(args.fd, False)
    from nnburst.driver.executors import begin_executor, import_engine

    begin_executor(args.executor)
    from nnburst.driver.service.admission import Admission
    from nnburst.driver.service.worker import serve_client

    import_engine(args.executor)
    imported()
    name = args.name or args.executor
    serve_client(lambda: Admission(socket.socket(fileno=args.fd)), args.executor, name)


def _serve(listener: Listener, args: argparse.Namespace, imported: Callable[[], None]) -> None:
    import json

    from nnburst.driver.executors import begin_executor

    # As in `_serve_one`: what an executor tries first is a child, too.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begin_executor(args.executor)
    from nnburst.driver.service.front_keeper import FrontKeeper
    from nnburst.driver.service.supervisor import Supervisor
    from nnburst.driver.service.weights_keeper import WeightsKeeper

    weights: WeightsKeeper | None = None
    if args.share_weights != "off":
        weights = WeightsKeeper(args.executor, across_users=args.share_weights == "all")
    front = FrontKeeper(listener.path, json.loads(args.front)) if args.front else None
    supervisor = Supervisor(
        listener,
        args.executor,
        args.serve,
        any_user=args.any_user,
        front=front,
        until_stdin_ends=args.until_stdin_ends,
        weights=weights,
    )
    supervisor.prepare()
    imported()
    _announce(listener.path, args.executor, args.json)
    supervisor.run()


def _announce(path: Path, executor: str, file: Path | None) -> None:
    """Say that clients may come: on stdout, for machines in `file` ("-" is stdout)."""
    import json  # a driver of one client has no use for it

    facts = json.dumps({"address": str(path), "executor": executor, "pid": os.getpid()})
    if file is not None and str(file) != "-":
        file.write_text(facts + "\n")
    text = f"{executor} listens at {path} (pid {os.getpid()})"
    print(facts if str(file) == "-" else text, flush=True)  # noqa: T201
