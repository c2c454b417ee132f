"""The front's options on the command line."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.hal.errors import InvalidArgument

_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Tls:
    """Files in PEM.

    Attributes:
        certificate: of the server, with those between it and the root.
        key: of the certificate.
        client_ca: who must have signed the certificates of clients; None asks for none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True)
class Options:
    """What to serve, where, and how much at once.

    Attributes:
        connect: name or path of the driver.
        models: for each name a file that `nnburst.load` reads, or `module:attribute`.
        grpc: "HOST:PORT"; port 0 lets the kernel choose; empty for metrics alone.
        tls: None is plain text.
        metrics: "HOST:PORT" on this host; empty for no metrics.
        shared_memory: whether callers on this machine may register shared memory.
        max_message: bytes of a request, and of a response.
        max_rpcs: requests at once; more are refused.
        max_streams: of these, streams; each has a thread.
        max_connections: clients at once; more are refused.
        max_sequences: of each model.
        lanes: executions of one model at once.
        supervised: whether a byte of standard input begins serving, and its end ends this process.
        counts_fd: the socket over which a supervisor is asked what was counted; -1 without one.
    """

    connect: str
    models: dict[str, str]
    grpc: str
    tls: Tls | None = None
    metrics: str = ""
    shared_memory: bool = False
    max_message: int = 16 * _MIB
    max_rpcs: int = 64
    max_streams: int = 16
    max_connections: int = 256
    max_sequences: int = 64
    lanes: int = 2
    supervised: bool = False
    counts_fd: int = -1


#: What the numbers among the options limit, by their names.
_LIMITS: Final = {
    "max_message": "bytes of a request or response",
    "max_rpcs": "requests at once",
    "max_streams": "streams among them",
    "max_connections": "clients at once",
    "max_sequences": "sequences of each model with state at once",
    "lanes": "executions of a model at once",
}


def _option(name: str) -> str:
    return f"--grpc-{name.replace('_', '-')}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `nnburst serve` has, too."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a network for gRPC clients: a .tflite file, or module:attribute; may be repeated",
    )
    parser.add_argument("--grpc", metavar="HOST:PORT", help="serve KServe v2 here (extra grpc)")
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="Prometheus metrics for programs of this user on this host (extra metrics)",
    )
    parser.add_argument("--grpc-tls-cert", metavar="FILE", type=Path, help="certificate, PEM")
    parser.add_argument("--grpc-tls-key", metavar="FILE", type=Path, help="its key, PEM")
    parser.add_argument(
        "--grpc-client-ca",
        metavar="FILE",
        type=Path,
        help="ask clients for certificates that this one has signed, PEM",
    )
    parser.add_argument(
        "--grpc-shared-memory",
        action="store_true",
        help="let callers on this machine register shared memory of this user by name",
    )
    for name, what in _LIMITS.items():
        parser.add_argument(
            _option(name),
            type=int,
            default=getattr(Options, name),
            metavar="N",
            help=f"{what} (%(default)s)",
        )


def words(args: argparse.Namespace) -> list[str]:
    """The options of `add_options` as words for the front's command line; empty if none was given.

    Raises:
        InvalidArgument: they do not go together.
    """
    options = from_namespace(args, connect="")
    if options is None:
        return []
    found = ["--grpc", options.grpc] if options.grpc else []
    for name, source in options.models.items():
        found += ["--model", f"{name}={source}"]
    if options.tls is not None:
        found += ["--grpc-tls-cert", str(options.tls.certificate.resolve())]
        found += ["--grpc-tls-key", str(options.tls.key.resolve())]
        if options.tls.client_ca is not None:
            found += ["--grpc-client-ca", str(options.tls.client_ca.resolve())]
    if options.metrics:
        found += ["--metrics", options.metrics]
    if options.shared_memory:
        found.append("--grpc-shared-memory")
    for name in _LIMITS:
        found += [_option(name), str(getattr(options, name))]
    return found


def from_namespace(args: argparse.Namespace, connect: str) -> Options | None:
    """The options that were given; None without `--grpc` and `--metrics`.

    Raises:
        InvalidArgument: they do not go together, or a number is not positive.
    """
    if args.grpc is None:
        if args.model:
            raise InvalidArgument(
                "--model: networks are for gRPC clients, so --grpc is needed, too"
            )
        if not args.metrics:
            return None
    numbers = {name: getattr(args, f"grpc_{name}") for name in _LIMITS}
    for name, number in numbers.items():
        if number < 1:
            raise InvalidArgument(f"{_option(name)}: {number}, expected 1 or more")
    return Options(
        connect=connect,
        models=_models(args.model),
        grpc=_address("--grpc", args.grpc) if args.grpc is not None else "",
        metrics=_local_address(args.metrics) if args.metrics else "",
        tls=_tls(args),
        shared_memory=args.grpc_shared_memory,
        supervised=getattr(args, "supervised", False),
        counts_fd=getattr(args, "counts_fd", -1),
        **numbers,
    )


def parse(argv: Sequence[str] | None = None) -> Options:
    """The options of `python -m nnburst.serving`.

    Raises:
        InvalidArgument: they do not go together.
    """
    parser = argparse.ArgumentParser(prog="python -m nnburst.serving", description=__doc__)
    parser.add_argument("--connect", required=True, help="name or path of the driver")
    parser.add_argument(
        "--supervised",
        action="store_true",
        help="serve after a byte of standard input, end with it",
    )
    parser.add_argument("--counts-fd", type=int, default=-1, help="socket to the supervisor")
    add_options(parser)
    args = parser.parse_args(argv)
    options = from_namespace(args, args.connect)
    if options is None:
        raise InvalidArgument("--grpc: missing, and so is --metrics; expected HOST:PORT for one")
    return options


def _models(given: Sequence[str]) -> dict[str, str]:
    models: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not name or not equals or not source:
            raise InvalidArgument(f"--model: {text!r}, expected NAME=FILE")
        if name in models:
            raise InvalidArgument(f"--model: {name!r} comes twice")
        if ":" not in source and not Path(source).is_file():
            raise InvalidArgument(f"--model: {source} is not a file")
        models[name] = source if ":" in source else str(Path(source).resolve())
    return models


def _address(option: str, text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidArgument(f"{option}: {text!r}, expected HOST:PORT")
    return text


def _local_address(text: str) -> str:
    if not is_loopback(_address("--metrics", text).rpartition(":")[0]):
        raise InvalidArgument(f"--metrics: {text!r}, expected an address of loopback")
    return text


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`, a name or an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _tls(args: argparse.Namespace) -> Tls | None:
    certificate, key, client_ca = args.grpc_tls_cert, args.grpc_tls_key, args.grpc_client_ca
    if (certificate is None) != (key is None):
        raise InvalidArgument("--grpc-tls-cert and --grpc-tls-key: one without the other")
    if certificate is None and client_ca is not None:
        raise InvalidArgument("--grpc-client-ca: needs --grpc-tls-cert and --grpc-tls-key")
    for path in (certificate, key, client_ca):
        if path is not None and not path.is_file():
            raise InvalidArgument(f"{path} is not a file")
    return None if certificate is None else Tls(certificate, key, client_ca)
