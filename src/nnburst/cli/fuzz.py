"""`nnburst fuzz`: sends hostile messages, packets, models and files to a driver or to the importer.

`nnburst fuzz onnx` and `nnburst fuzz tflite` send mutated files as whole graphs to a driver of the executor
onnxruntime or litert. The driver gets the mutated bytes as from a hostile client: no library has read them
before. A graph that ends its worker is counted, but is not a failure: the worker serves this client only.
Failures are a supervisor that stops serving, and errors of the client that are not nnburst's own.
`nnburst fuzz queue` changes every byte that two ends of a message queue share while a process uses them.
`nnburst fuzz plans` compares plans of random models over random devices with the reference executor. There
are one to four made-up devices of random feature level, cost and support, some of which refuse models or fail
to execute them, and the CPU device after them. The plan's results must equal the whole model's, bit for bit,
and every plan must keep the rules of plans.
"""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from nnburst.cli.options import Subparsers, at_least_one, pattern, zero_or_more
from nnburst.cli.output import (
    add_json_option,
    progress,
    table,
    text_for_people,
    writable_folder,
    write_json,
)
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.regular_file import read_regular_file
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import RUNNERS, Runner
from nnburst.testing.conformance.vectors import write
from nnburst.testing.models.random_graphs import PRIMARY, RandomGraph, check, generate, shrink
from nnburst.testing.models.random_graphs.graphs import as_vector, tolerance_for

if TYPE_CHECKING:
    from nnburst.testing.fuzzing.model_asking import FuzzReport
    from nnburst.testing.models.small_models import SmallModel


def _add_seed(parser: argparse.ArgumentParser, of: str) -> None:
    parser.add_argument(
        "--seed", type=zero_or_more, default=0, help=f"seed of the {of} (default: 0)"
    )


def _add_executor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--executor", default="reference", help="executor of the driver (default: reference)"
    )


def _print_failures(failures: Sequence[str]) -> None:
    for failure in failures:
        print(f"failure: {failure}")


# -- nnburst fuzz control --------------------------------------------------------------------------


def _prepare_control(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "control",
        help="mutated control messages",
        description="`nnburst fuzz control`: mutated control messages against a live driver.",
    )
    parser.add_argument(
        "--messages",
        type=at_least_one,
        default=100_000,
        help="number of messages (default: %(default)s)",
    )
    _add_executor(parser)
    _add_seed(parser, "mutations")
    add_json_option(parser)


def _run_control(args: argparse.Namespace) -> int:
    """Fuzz, and report the failures."""
    from nnburst.testing.fuzzing.control_fuzzer import fuzz_control

    began = time.monotonic()
    with text_for_people(args.json), progress("mutated messages", args.messages) as advance:
        report = fuzz_control(args.messages, args.seed, args.executor, advance)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.messages} mutated messages in {seconds:.0f} s",
            ("answered", "messages"),
            sorted(report.outcomes.items()),
        )
        print(f"the driver grew by {report.rss_growth / 2**20:.1f} MiB")
        _print_failures(report.failures)
    write_json(
        args.json,
        {
            "messages": report.messages,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "rss_growth_bytes": report.rss_growth,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0


# -- nnburst fuzz graphs ---------------------------------------------------------------------------


class ShownFailure(NamedTuple):
    """A graph with wrong results, shrunk to the operations that matter."""

    name: str
    operations: list[str]
    reason: str
    file: str


def _prepare_graphs(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "graphs",
        help="random models against a naive evaluator",
        description="`nnburst fuzz graphs`: random models against a naive evaluator.",
    )
    parser.add_argument(
        "--executor",
        default="reference",
        metavar="NAME",
        help="executor to try (default: reference)",
    )
    parser.add_argument(
        "--via",
        default="local",
        choices=("local", "execute", "burst"),
        help="how graphs reach it (default: local)",
    )
    parser.add_argument(
        "--size", default="all", choices=(*PRIMARY, "all"), help="size of the graphs (default: all)"
    )
    parser.add_argument(
        "--seeds",
        type=at_least_one,
        default=50,
        metavar="N",
        help="seeds of each class (default: %(default)s)",
    )
    parser.add_argument(
        "--first", type=zero_or_more, default=0, metavar="SEED", help="first seed (default: 0)"
    )
    parser.add_argument(
        "--dump",
        type=writable_folder,
        default=Path("graph-failures"),
        metavar="DIR",
        help="where to write failing graphs as vector files (default: %(default)s)",
    )
    add_json_option(parser)


def _run_graphs(args: argparse.Namespace) -> int:
    """Run all graphs; 0 only if none fails."""
    if args.via not in RUNNERS:
        raise InvalidArgument(f"--via {args.via} is not available, there is {', '.join(RUNNERS)}")
    sizes = list(PRIMARY) if args.size == "all" else [args.size]
    classes = [(size, kind) for size in sizes for kind in PRIMARY[size]]
    seeds = range(args.first, args.first + args.seeds)
    runner = RUNNERS[args.via](args.executor)
    started = time.monotonic()
    rows, failures = [], []
    with text_for_people(args.json), progress("random graphs", len(classes)) as advance:
        for size, kind in classes:
            found, skipped = _run_class(size, kind, seeds, runner, args.dump)
            rows.append((f"{size} {kind.name}", len(seeds), len(found), skipped))
            failures += found
            advance(1)
    runner.close()
    total = len(classes) * len(seeds)
    with text_for_people(args.json):
        table("random graphs", ("class", "graphs", "failed", "not supported"), rows)
        for failure in failures:
            print(f"FAILED {failure.name}: {', '.join(failure.operations)}: {failure.reason}")
            print(f"       {failure.file}")
        print(f"{total} graphs, {len(failures)} failed in {time.monotonic() - started:.1f} s")
    write_json(
        args.json,
        {
            "graphs": total,
            "failed": len(failures),
            "failures": [failure._asdict() for failure in failures],
        },
    )
    return 1 if failures else 0


def _run_class(
    size: str, kind: OperandType, seeds: range, runner: Runner, dump: Path
) -> tuple[list[ShownFailure], int]:
    """Run the graphs of one class; the failures, and the number of graphs that the executor cannot run."""
    failures, skipped = [], 0
    for seed in seeds:
        graph = generate(size, kind, seed)
        try:
            if check(graph, runner) is not None:
                failures.append(_shrunk(graph, runner, dump))
        except Unsupported:
            skipped += 1
    return failures, skipped


def _shrunk(graph: RandomGraph, runner: Runner, dump: Path) -> ShownFailure:
    kept = shrink(graph, lambda keep: check(graph, runner, keep) is not None)
    path = dump / f"{graph.name}.json.gz"
    write(path, as_vector(graph, kept, tolerance_for(graph, kept)))
    names = [graph.operations[i].kind.name for i in kept]
    return ShownFailure(graph.name, names, check(graph, runner, kept) or "", str(path))


# -- nnburst fuzz importer -------------------------------------------------------------------------


def _prepare_importer(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "importer",
        help="mutated .tflite or .onnx files",
        description="`nnburst fuzz importer`: mutated .tflite or .onnx files, read in this process.",
    )
    parser.add_argument(
        "networks",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="intact files to mutate beside the built-in ones",
    )
    parser.add_argument(
        "--files",
        type=at_least_one,
        default=100_000,
        help="number of mutated files (default: %(default)s)",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="the built-in ones are the node tests of the package onnx, not .tflite files",
    )
    _add_seed(parser, "mutations")
    add_json_option(parser)


def _run_importer(args: argparse.Namespace) -> int:
    """Fuzz, and report the failures."""
    from nnburst.testing.fuzzing.file_fuzzers import fuzz_importer

    intact = _files(args.networks)
    intact += _node_tests() if args.onnx else _networks()
    began = time.monotonic()
    with text_for_people(args.json), progress("mutated files", args.files) as advance:
        report = fuzz_importer(intact, args.files, args.seed, advance)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.files} mutations of {len(intact)} files in {seconds:.0f} s",
            ("outcome", "files"),
            sorted(report.outcomes.items()),
        )
        print(f"slowest file: {report.slowest * 1e3:.0f} ms")
        print(f"most memory for one file: {report.largest / 2**20:.1f} MiB")
        _print_failures(report.failures)
    write_json(
        args.json,
        {
            "files": report.files,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "slowest_seconds": round(report.slowest, 4),
            "largest_bytes": report.largest,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0


def _files(paths: Sequence[Path]) -> list[bytes]:
    """Read files to mutate.

    Raises:
        InvalidArgument: a file is smaller than any network.
        OSError: a file cannot be read.
    """
    from nnburst.testing.fuzzing.file_fuzzers import LEAST_BYTES

    found = [read_regular_file(path) for path in paths]
    for path, content in zip(paths, found, strict=True):
        if len(content) < LEAST_BYTES:
            raise InvalidArgument(f"{path}: {len(content)} bytes, expected an intact network")
    return found


def _networks() -> list[bytes]:
    from nnburst.testing.models.tflite_networks import NETWORKS

    return [build() for build in NETWORKS.values()]


def _node_tests() -> list[bytes]:
    from nnburst.testing.conformance.onnx_nodes import files

    return files()


# -- nnburst fuzz models ---------------------------------------------------------------------------


def _prepare_models(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "models",
        help="mutated models, requests and packets against a live driver",
        description="Every mutation must be refused with INVALID_ARGUMENT (packets: with an error),"
        " and the driver must live on.",
    )
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="'builtin', vector files, or folders of them"
    )
    parser.add_argument(
        "--per-operation",
        type=at_least_one,
        metavar="N",
        help="models of each operation (default: all)",
    )
    parser.add_argument(
        "--model", type=pattern, default="", metavar="REGEX", help="only models whose names match"
    )
    parser.add_argument(
        "--mutation",
        type=pattern,
        default="",
        metavar="REGEX",
        help="only mutations whose descriptions match: VM11 operand 2",
    )
    _add_executor(parser)
    add_json_option(parser)


def _run_models(args: argparse.Namespace) -> int:
    """Send all mutations; 0 only if at least one was sent and all were refused."""
    import nnburst
    from nnburst.testing.fuzzing.model_asking import EVERYTHING, FuzzSelection
    from nnburst.testing.fuzzing.model_fuzzer import fuzz

    models = _models(args.sources, args.model, args.per_operation)
    selection = FuzzSelection(args.mutation) if args.mutation else EVERYTHING
    began = time.monotonic()
    with (
        text_for_people(args.json),
        nnburst.launch(args.executor) as device,
        progress(f"mutations of {len(models)} models", len(models)) as advance,
    ):
        report = fuzz(device, models, selection, advance)
        alive = device.is_alive
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        names, title = {model.name for model in models}, f"{len(models)} models, {seconds:.0f} s"
        _print(report, args, names, alive=alive, title=title)
    passed = alive and report.total > 0 and not report.failures
    write_json(
        args.json,
        {
            "models": len(models),
            "operations": len(frozenset[int]().union(*(m.operations for m in models))),
            "seconds": round(seconds, 1),
            "mutations": report.total,
            "by_mutation": dict(report.sent),
            "refused_by": dict(report.refused_by),
            "failures": [failure._asdict() for failure in report.failures],
            "driver_alive": alive,
            "passed": passed,
        },
    )
    return 0 if passed else 1


def _models(sources: Sequence[str], name: str, per_operation: int | None) -> list[SmallModel]:
    from nnburst.testing.conformance.campaign import find_files
    from nnburst.testing.conformance.vectors import read
    from nnburst.testing.models.small_models import all_models, from_vector, some_per_operation

    found = list(all_models()) if "builtin" in sources else []
    paths = [Path(source) for source in sources if source != "builtin"]
    for file in find_files(paths) if paths else ():
        found += [from_vector(vector) for vector in read(file) if not vector.expect_failure]
    found = [model for model in found if re.search(name, model.name)]
    return found if per_operation is None else list(some_per_operation(found, per_operation))


def _print(
    report: FuzzReport, args: argparse.Namespace, names: Container[str], *, alive: bool, title: str
) -> None:
    from nnburst.testing.fuzzing.model_asking import KINDS

    table(
        f"{report.total} mutations of {title}",
        ("id", "mutation", "sent"),
        [(kind, KINDS[kind], report.sent[kind]) for kind in KINDS if report.sent[kind]],
    )
    answers = sorted(report.refused_by.items(), key=lambda item: -item[1])
    print("models refused by", ", ".join(f"{rule} {count}" for rule, count in answers))
    print(f"driver: {'alive' if alive else 'DEAD'}; {len(report.failures)} failures")
    if not report.total:
        print("nothing was sent: SOURCE, --model and --mutation leave no mutation")
    for failure in report.failures:
        print(f"FAILED {failure.model}: {failure.mutation}: {failure.reason}")
        # A model of the fuzzer itself follows the models of any run.
        few = "--per-operation", "1"
        if failure.model in names:
            few = "--model", f"^{re.escape(failure.model)}$"
        words = [*args.sources, "--executor", args.executor, *few]
        # What is no kind of mutation, such as the driver's end, may need all mutations of the model.
        if failure.mutation.partition(" ")[0] in KINDS:
            words += ["--mutation", f"{re.escape(failure.mutation)}$"]
        print("       " + shlex.join(["nnburst", "fuzz", "models", *words]))


# -- fuzz onnx, fuzz tflite -------------------------------------------------------------------------


def _prepare_onnx(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    _prepare_whole(subparsers, "onnx", "onnxruntime", "the node tests of the package onnx")


def _prepare_tflite(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    _prepare_whole(subparsers, "tflite", "litert", "networks of one operator")


def _prepare_whole(subparsers: Subparsers, kind: str, executor: str, built_in: str) -> None:
    parser = subparsers.add_parser(
        kind,
        help=f"mutated .{kind} files through a driver",
        description=f"`nnburst fuzz {kind}`: mutated .{kind} files as whole graphs through a driver of "
        f"the executor {executor}.",
    )
    parser.add_argument(
        "networks",
        nargs="*",
        type=Path,
        metavar="FILE",
        help=f"intact files to mutate (default: {built_in})",
    )
    parser.add_argument(
        "--graphs",
        type=at_least_one,
        default=10_000,
        help="number of mutated graphs (default: %(default)s)",
    )
    _add_seed(parser, "mutations")
    parser.add_argument(
        "--first", type=zero_or_more, default=0, help="number of the first graph (default: 0)"
    )
    add_json_option(parser)


def _run_onnx(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    return _run_whole(args, "ONNX", "onnxruntime", _node_tests)


def _run_tflite(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    return _run_whole(args, "TFLite", "litert", _networks)


def _run_whole(
    args: argparse.Namespace,
    kind: str,
    executor: str,
    built_in: Callable[[], Sequence[bytes]],
) -> int:
    """Fuzz graphs of the given files, which are of format `kind`, or of those that are built in."""
    from nnburst.testing.fuzzing.file_fuzzers import check_format, fuzz_graphs

    intact = _files(args.networks)
    for path, content in zip(args.networks, intact, strict=True):
        try:
            check_format(content, kind)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: expected a network in {kind} format: {error}") from None
    intact = intact or list(built_in())
    began = time.monotonic()
    with text_for_people(args.json), progress("mutated graphs", args.graphs) as advance:
        report = fuzz_graphs(
            intact, args.graphs, args.seed, advance, executor=executor, first=args.first
        )
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.graphs} mutations of {len(intact)} files in {seconds:.0f} s",
            ("outcome", "graphs"),
            sorted(report.outcomes.items()),
        )
        print(f"the supervisor grew by {report.supervisor_growth / 2**20:.1f} MiB")
        if report.worker_ends:
            print("the engine ended its worker:", ", ".join(map(str, report.worker_ends)))
        _print_failures(report.failures)
    write_json(
        args.json,
        {
            "graphs": report.graphs,
            "seed": args.seed,
            "first": args.first,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "worker_ends": report.worker_ends,
            "failures": report.failures,
            "supervisor_growth_bytes": report.supervisor_growth,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0


# -- nnburst fuzz packets --------------------------------------------------------------------------


#: Bytes by which a driver's memory may grow.
_GROWTH_LIMIT = 16 * 1024 * 1024


def _prepare_packets(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "packets",
        help="mutated request packets against a live driver",
        description="`nnburst fuzz packets`: mutated request packets against a live driver.",
    )
    parser.add_argument(
        "--packets",
        "--count",
        type=at_least_one,
        default=200_000,
        help="number of packets (default: %(default)s)",
    )
    _add_seed(parser, "random packets")
    _add_executor(parser)
    add_json_option(parser)


def _run_packets(args: argparse.Namespace) -> int:
    """Fuzz, and report the failures."""
    import nnburst
    from nnburst.testing.fuzzing.packet_fuzzer import fuzz_packets

    began = time.monotonic()
    with (
        text_for_people(args.json),
        nnburst.launch(args.executor) as device,
        progress("mutated packets", args.packets) as advance,
    ):
        report = fuzz_packets(device, args.packets, args.seed, advance)
        alive = device.is_alive
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.packets} mutated packets, a valid one after each, in {seconds:.0f} s"
            f" ({report.packets / seconds:.0f}/s)",
            ("outcome", "packets"),
            sorted(report.outcomes.items()),
        )
        print(
            f"driver: {'alive' if alive else 'DEAD'}, at {report.rss / 2**20:.1f} MiB,"
            f" grew by {report.rss_growth / 2**20:.1f} MiB,"
            f" allowed are {_GROWTH_LIMIT / 2**20:.0f} MiB"
        )
        _print_failures(report.failures)
    passed = alive and not report.failures and report.rss_growth <= _GROWTH_LIMIT
    write_json(
        args.json,
        {
            "packets": report.packets,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "driver_alive": alive,
            "packets_per_second": round(report.packets / seconds, 1),
            "rss_bytes": report.rss,
            "rss_growth_bytes": report.rss_growth,
            "passed": passed,
        },
    )
    return 0 if passed else 1


# -- nnburst fuzz plans: random models over random devices -----------------------------------------
# There are one to four made-up devices of random feature level, cost and support, some of which refuse models
# or fail to execute them, and the CPU behind them. The plan must compute the same as the reference executor
# computes for the whole model, bit for bit, and every plan must keep the rules of plans.


def _prepare_plans(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plans",
        help="random models over random devices",
        description="`nnburst fuzz plans`: random models over random devices against the reference "
        "executor.",
    )
    parser.add_argument(
        "--graphs",
        type=at_least_one,
        default=200,
        metavar="N",
        help="number of models (default: %(default)s)",
    )
    parser.add_argument(
        "--first", type=zero_or_more, default=0, metavar="SEED", help="first seed (default: 0)"
    )
    add_json_option(parser)


def _run_plans(args: argparse.Namespace) -> int:
    """Run all plans; 0 only if no result differs."""
    from nnburst.testing.framework import quiet_log
    from nnburst.testing.partitioning.plan_runner import run_seeds

    started = time.monotonic()
    counts: Counter[str] = Counter()
    failures = []
    progressing = progress("random plans", args.graphs)
    with text_for_people(args.json), quiet_log(), progressing as advance:
        for found in run_seeds(range(args.first, args.first + args.graphs)):
            counts += found.counts
            if found.reason:
                failures.append(found)
            advance(1)
    with text_for_people(args.json):
        table("what was planned", ("what", "how many"), sorted(counts.items()))
        for failure in failures:
            print(f"FAILED {failure.graph}: {failure.reason}")
        seconds = time.monotonic() - started
        print(f"{args.graphs} graphs, {len(failures)} failed in {seconds:.1f} s")
    write_json(
        args.json,
        {
            "graphs": args.graphs,
            "failed": len(failures),
            "counts": dict(counts),
            "failures": [{"graph": f.graph, "reason": f.reason} for f in failures],
        },
    )
    return 1 if failures else 0


# -- nnburst fuzz queue ----------------------------------------------------------------------------


def _prepare_queue(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "queue",
        help="message queues whose shared bytes change at random",
        description="`nnburst fuzz queue`: message queues whose shared bytes change at random while a"
        " process uses them.",
    )
    parser.add_argument(
        "--queues",
        type=at_least_one,
        default=500,
        metavar="N",
        help="number of queues (default: %(default)s)",
    )
    _add_seed(parser, "changes")
    add_json_option(parser)


def _run_queue(args: argparse.Namespace) -> int:
    """Fuzz all queues; 0 only if they raised no errors but nnburst's own."""
    from nnburst.testing.fuzzing.packet_fuzzer import fuzz_queues

    began = time.monotonic()
    with text_for_people(args.json), progress("queues", args.queues) as advance:
        report = fuzz_queues(args.queues, args.seed, advance)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"calls of {report.queues} queues in {seconds:.0f} s",
            ("outcome", "calls"),
            sorted(report.outcomes.items()),
        )
        _print_failures(report.failures)
    write_json(
        args.json,
        {
            "queues": report.queues,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0


_COMMANDS: Final = {
    "control": (_prepare_control, _run_control),
    "graphs": (_prepare_graphs, _run_graphs),
    "importer": (_prepare_importer, _run_importer),
    "models": (_prepare_models, _run_models),
    "onnx": (_prepare_onnx, _run_onnx),
    "packets": (_prepare_packets, _run_packets),
    "plans": (_prepare_plans, _run_plans),
    "queue": (_prepare_queue, _run_queue),
    "tflite": (_prepare_tflite, _run_tflite),
}


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("fuzz", help="send what no honest client would send")
    nested = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for prepare, _ in _COMMANDS.values():
        prepare(nested)


def run(args: argparse.Namespace) -> int:
    """Run the chosen command."""
    _, command = _COMMANDS[args.subcommand]
    return command(args)
