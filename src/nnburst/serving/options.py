"""Declares and parses the front's options on the command line."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX
from nnburst.importer.named_sources import NamedSource, named_sources
from nnburst.serving.regions import KEY

_MIB: Final = 1 << 20
#: Greatest value of an option in seconds: a day.
_LONGEST: Final = 86_400


@dataclass(frozen=True)
class Tls:
    """The PEM files of TLS.

    Attributes:
        certificate: certificate of the server, with those between it and the root.
        key: private key of the certificate.
        client_ca: authority that must have signed the clients' certificates; None requires none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True)
class Options:
    """The options of a front: models, addresses and limits.

    Attributes:
        connect: name or path of the driver.
        models: the versions of each network by its name.
        grpc: "HOST:PORT" or "unix:PATH"; port 0 lets the kernel choose; empty for none.
        http: as `grpc`, for HTTP.
        any_user: whether processes of other users may connect to sockets with paths.
        token_file: file whose lines are tokens, one of which callers need; None requires none.
        spans: whether requests have spans of OpenTelemetry.
        http_metrics: whether HTTP answers /metrics, too.
        tls: files of TLS; None for plain text.
        metrics: "HOST:PORT", beyond this host only with tokens; empty for no metrics.
        shared_memory: whether callers over loopback may register shared memory that is theirs.
        trusted_regions: prefix of keys of shared memory that every caller may register; empty for none.
        max_message: greatest size of a request and of a response, in bytes.
        max_queue: greatest number of waiting requests for each model; more are refused.
        max_streams: greatest number of streams at once, each with a thread.
        max_connections: greatest number of clients at once; more are refused.
        max_sequences: greatest number of sequences of each model.
        lanes: number of executions of one model at once.
        max_batch: greatest number of rows of a batch; 1 for no batches.
        max_delay_us: microseconds that a request waits for others of its batch.
        watchdog: seconds after which a worker that gives no result, or is stopped, is replaced.
        drain: seconds that requests under way have when the front ends.
        repository: a folder of models in Triton's layout; None without one.
        model_control: "none", "poll" (the folder is followed) or "explicit" (callers load and unload).
        supervised: whether this process forks the front and ends with its standard input.
        counts_fd: socket for asking the supervisor for its counters; -1 without a supervisor.
    """

    connect: str
    models: dict[str, dict[int, NamedSource]]
    grpc: str
    http: str = ""
    any_user: bool = False
    token_file: Path | None = None
    spans: bool = False
    http_metrics: bool = False
    tls: Tls | None = None
    metrics: str = ""
    shared_memory: bool = False
    trusted_regions: str = ""
    max_message: int = 16 * _MIB
    max_queue: int = 256
    max_streams: int = 16
    max_connections: int = 256
    max_sequences: int = 64
    lanes: int = 2
    max_batch: int = 1
    max_delay_us: int = 0
    watchdog: float = 60.0
    drain: float = 10.0
    repository: Path | None = None
    model_control: str = "none"
    supervised: bool = False
    counts_fd: int = -1


#: Descriptions of the options that are numbers, by name.
_LIMITS: Final = {
    "max_message": "bytes of a request or response",
    "max_queue": "requests that wait for each model; more are refused",
    "max_streams": "streams at once",
    "max_connections": "clients at once",
    "max_sequences": "sequences of each model with state at once",
    "lanes": "executions of a model at once",
    "max_batch": "join requests up to so many rows, for models whose first dimension is open and counts rows",
    "max_delay_us": "microseconds that a request waits for others to join",
}


MODEL_CONTROL: Final = ("none", "poll", "explicit")
#: Limits whose options begin with --grpc, since HTTP has nothing like them.
_OF_GRPC: Final = ("max_streams",)
#: Descriptions of the options that are durations in seconds, by name.
_SECONDS: Final = {
    "watchdog": "seconds after which a worker that gives no result, or is stopped, is replaced:"
    " more than the longest execution",
    "drain": "seconds that requests under way have when the server is asked to end",
}


def _option(name: str) -> str:
    prefix = "--grpc-" if name in _OF_GRPC else "--"
    return prefix + name.replace("_", "-")


class _InOrder(argparse.Action):
    """An action that keeps options and values in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse passes it
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        known = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*known, (option_string, values)])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `nnburst serve` has, too."""
    parser.add_argument(
        "--model",
        action=_InOrder,
        default=[],
        metavar="NAME=FILE",
        help="a network that clients open by name: a .tflite or .onnx file, or module:attribute;"
        " NAME@VERSION=FILE is another version of one; may be repeated",
    )
    parser.add_argument(
        "--shape",
        action=_InOrder,
        default=[],
        dest="model",
        metavar="INPUT=1,3,…",
        help="dimensions of an input that the file of the --model before it leaves open; may be repeated",
    )
    parser.add_argument(
        "--state",
        action=_InOrder,
        default=[],
        dest="model",
        metavar="INPUT=OUTPUT",
        help="an input of the .onnx file of the --model before it that takes what an output gave before; it"
        " stays in the driver; may be repeated",
    )
    parser.add_argument(
        "--largest",
        action=_InOrder,
        default=[],
        dest="model",
        metavar="OUTPUT",
        help="an output of the .onnx file of the --model before it: answers have the index of its largest"
        " (OUTPUT_largest) instead; may be repeated",
    )
    parser.add_argument(
        "--repository",
        metavar="DIR",
        type=Path,
        help="serve the models of this folder, too, in Triton's layout: NAME/VERSION/model.onnx",
    )
    parser.add_argument(
        "--model-control",
        choices=MODEL_CONTROL,
        default=MODEL_CONTROL[0],
        help="when models come and go: never (none), as the folder changes (poll), or when callers load and"
        " unload them (explicit); default: %(default)s",
    )
    _add_places(parser)
    _add_callers(parser)
    for name, what in _LIMITS.items():
        parser.add_argument(
            _option(name),
            type=int,
            default=getattr(Options, name),
            metavar="N",
            dest=name,
            help=f"{what} (%(default)s)",
        )
    for name, what in _SECONDS.items():
        parser.add_argument(
            _option(name),
            type=float,
            default=getattr(Options, name),
            metavar="SECONDS",
            dest=name,
            help=f"{what} (%(default)g)",
        )


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grpc", metavar="HOST:PORT", help="serve KServe v2 here, or at unix:PATH (extra grpc)"
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve KServe v2 over HTTP here, or at unix:PATH (extra http)",
    )
    parser.add_argument(
        "--http-metrics",
        action="store_true",
        help="answer /metrics over HTTP, too, to every caller that may call (extra metrics)",
    )
    parser.add_argument(
        "--spans",
        action="store_true",
        help="send a span of each request by OTLP, as OpenTelemetry's variables have it:"
        " OTEL_EXPORTER_OTLP_ENDPOINT and others (extra otel)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="Prometheus metrics for programs of this user on this host, and with --token-file for every"
        " caller with a token, also at an address beyond loopback (extra metrics)",
    )


def _add_callers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="ask callers for `authorization: Bearer TOKEN` with a line of this file",
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, PEM")
    parser.add_argument(
        "--client-ca",
        metavar="FILE",
        type=Path,
        help="ask clients for certificates that this one has signed, PEM",
    )
    parser.add_argument(
        "--shared-memory",
        action="store_true",
        help="let callers over loopback register shared memory by name that their user may write, too",
    )
    parser.add_argument(
        "--trust-regions",
        metavar="PREFIX",
        default="",
        help="with --shared-memory: let every caller, known or not, register this user's shared memory"
        " whose name begins so",
    )


def words(args: argparse.Namespace) -> list[str]:
    """The given options of `add_options` as words for the front's command line; empty without any.

    Raises:
        InvalidArgument: the options contradict each other.
    """
    options = from_namespace(args, connect="")
    if options is None:
        return []
    found = ["--grpc", options.grpc] if options.grpc else []
    if options.http:
        found += ["--http", options.http]
    if options.http_metrics:
        found.append("--http-metrics")
    if options.spans:
        found.append("--spans")
    if options.any_user:
        found.append("--any-user")
    if options.token_file is not None:
        found += ["--token-file", str(options.token_file)]
    for versions in options.models.values():
        for source in versions.values():
            found += source.words()
    if options.repository is not None:
        found += ["--repository", str(options.repository)]
    found += ["--model-control", options.model_control]
    if options.tls is not None:
        found += ["--tls-cert", str(options.tls.certificate.absolute())]
        found += ["--tls-key", str(options.tls.key.absolute())]
        if options.tls.client_ca is not None:
            found += ["--client-ca", str(options.tls.client_ca.absolute())]
    if options.metrics:
        found += ["--metrics", options.metrics]
    if options.shared_memory:
        found.append("--shared-memory")
    if options.trusted_regions:
        found += ["--trust-regions", options.trusted_regions]
    for name in (*_LIMITS, *_SECONDS):
        found += [_option(name), str(getattr(options, name))]
    return found


def from_namespace(args: argparse.Namespace, connect: str) -> Options | None:
    """The options that were given; None without an address to serve at.

    Raises:
        InvalidArgument: the options contradict each other, or a number is not positive.
    """
    if args.grpc is None and args.http is None and not args.metrics:
        _refuse_without_address(args)
        return None
    if args.http_metrics and args.http is None:
        raise InvalidArgument("--http-metrics: needs --http")
    if args.spans and args.grpc is None and args.http is None:
        raise InvalidArgument("--spans: needs --grpc or --http, whose requests have spans")
    _refuse_same_address(args)
    numbers = {name: getattr(args, name) for name in _LIMITS}
    seconds = {name: getattr(args, name) for name in _SECONDS}
    for name, number in numbers.items():
        least = 0 if name == "max_delay_us" else 1
        if not least <= number <= INT32_MAX:
            raise InvalidArgument(
                f"{_option(name)}: {number}, expected {least} or more and at most {INT32_MAX}"
            )
    for name, number in seconds.items():
        if not 0 < number <= _LONGEST:
            raise InvalidArgument(
                f"{_option(name)}: {number:g}, expected more than 0 and at most {_LONGEST} seconds"
            )
    return Options(
        connect=connect,
        models=_models(args.model),
        repository=_repository(args.repository),
        model_control=_model_control(args),
        grpc=_address("--grpc", args.grpc) if args.grpc is not None else "",
        http=_address("--http", args.http) if args.http is not None else "",
        any_user=args.any_user,
        token_file=_token_file(args.token_file),
        spans=args.spans,
        http_metrics=args.http_metrics,
        metrics=_metrics_address(args) if args.metrics else "",
        tls=_tls(args),
        shared_memory=args.shared_memory,
        trusted_regions=_prefix(args.trust_regions, shared_memory=args.shared_memory),
        supervised=getattr(args, "supervised", False),
        counts_fd=getattr(args, "counts_fd", -1),
        **numbers,
        **seconds,
    )


def _refuse_same_address(args: argparse.Namespace) -> None:
    """Refuse two protocols at one address, where the second one could never listen.

    Raises:
        InvalidArgument: two options have the same address.
    """
    seen: dict[str, str] = {}
    for name in ("grpc", "http", "metrics"):
        address = getattr(args, name)
        if not address or address.endswith(":0"):  # the kernel chooses a port for each
            continue
        if address in seen:
            raise InvalidArgument(
                f"{_option(name)}: {address!r} is that of {_option(seen[address])},"
                " expected another address"
            )
        seen[address] = name


def _refuse_without_address(args: argparse.Namespace) -> None:
    """Refuse options of a front that would not be there; networks of --model are the driver's, too.

    Raises:
        InvalidArgument: one is given.
    """
    parser = argparse.ArgumentParser()
    add_options(parser)
    absent = vars(parser.parse_args([]))
    for name, value in absent.items():
        if name not in ("model", "metrics") and getattr(args, name) != value:
            raise InvalidArgument(f"{_option(name)}: needs --grpc, --http or --metrics")


def parse(argv: Sequence[str] | None = None) -> Options:
    """Parse the options of `python -m nnburst.serving`.

    Raises:
        InvalidArgument: the options contradict each other.
    """
    parser = argparse.ArgumentParser(prog="python -m nnburst.serving", description=__doc__)
    parser.add_argument("--connect", required=True, help="name or path of the driver")
    parser.add_argument(
        "--supervised",
        action="store_true",
        help="fork the process that serves; end with standard input",
    )
    parser.add_argument("--counts-fd", type=int, default=-1, help="socket to the supervisor")
    parser.add_argument("--any-user", action="store_true", help="serve other users, too")
    add_options(parser)
    args = parser.parse_args(argv)
    options = from_namespace(args, args.connect)
    if options is None:
        raise InvalidArgument("--grpc: missing, and so is --metrics; expected HOST:PORT for one")
    return options


def _models(given: Sequence[tuple[str, str]]) -> dict[str, dict[int, NamedSource]]:
    models: dict[str, dict[int, NamedSource]] = {}
    for network in sorted(named_sources(given), key=lambda each: each[:2]):
        source = network.source
        if ":" not in source and not Path(source).is_file():
            raise InvalidArgument(f"--model: {source} is not a file")
        place = source if ":" in source else str(Path(source).resolve())
        models.setdefault(network.name, {})[network.version] = network._replace(source=place)
    return models


def _token_file(file: Path | None) -> Path | None:
    if file is not None and not file.is_file():
        raise InvalidArgument(f"--token-file: {file} is not a file")
    return None if file is None else file.absolute()


def _repository(folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        raise InvalidArgument(f"--repository: {folder} is not a folder")
    return None if folder is None else folder.resolve()


def _model_control(args: argparse.Namespace) -> str:
    if args.model_control == "poll" and args.repository is None:
        raise InvalidArgument("--model-control poll: needs --repository, the folder to follow")
    return str(args.model_control)


def _prefix(text: str, *, shared_memory: bool) -> str:
    if text and not shared_memory:
        raise InvalidArgument("--trust-regions: needs --shared-memory")
    if text and not KEY.fullmatch(text):
        raise InvalidArgument(
            f"--trust-regions: {text!r}, expected letters, digits, '_' and '-', as names begin"
        )
    return text


def _address(option: str, text: str) -> str:
    if text.startswith("unix:"):
        if not text.removeprefix("unix:").startswith("/"):
            raise InvalidArgument(f"{option}: {text!r}, expected unix: and a path from the root on")
        return text
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise InvalidArgument(f"{option}: {text!r}, expected HOST:PORT")
    return text


def _metrics_address(args: argparse.Namespace) -> str:
    address = _address("--metrics", args.metrics)
    if address.startswith("unix:"):
        raise InvalidArgument(f"--metrics: {address!r}, expected HOST:PORT")
    if args.token_file is None and not is_loopback(address.rpartition(":")[0]):
        raise InvalidArgument(
            f"--metrics: {address!r}, expected an address of loopback, or --token-file with it"
        )
    return address


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address) can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _tls(args: argparse.Namespace) -> Tls | None:
    certificate, key, client_ca = args.tls_cert, args.tls_key, args.client_ca
    if (certificate is None) != (key is None):
        raise InvalidArgument("--tls-cert and --tls-key: one without the other")
    if certificate is None and client_ca is not None:
        raise InvalidArgument("--client-ca: needs --tls-cert and --tls-key")
    for path in (certificate, key, client_ca):
        if path is not None and not path.is_file():
            raise InvalidArgument(f"{path} is not a file")
    return None if certificate is None else Tls(certificate, key, client_ca)
