"""Runs all cases and random graphs on one driver, and lists the operations without cases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from nnburst.client.device import Device
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import DeadObject, DeviceUnavailable, NnburstError
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import build, write
from nnburst.testing.models.random_graphs.builder import (
    SIZES,
    TEMPLATES,
    GraphBuilder,
    RandomGraph,
)
from nnburst.testing.models.random_graphs.chain_builder import SHAPES
from nnburst.testing.models.random_graphs.graphs import (
    PRIMARY,
    as_vector,
    check,
    draw,
    tolerance_for,
)
from nnburst.testing.models.random_graphs.pairs import OPERATIONS, Pair, graph_of, pairs
from nnburst.testing.pack.cases import Case, Triple, cases
from nnburst.testing.pack.trial import problem_of
from nnburst.testing.report import FAILED, PASSED, SKIPPED, CheckResult, Failure, TripleResult

#: Number of first cases of a triple (small ones, with and without options and constants): if a driver refuses
#: them all, the others are not drawn.
SCREENED: Final = 9
#: Failures after which the rest of a triple is not run.
_ENOUGH: Final = 5


class PackOptions(NamedTuple):
    """The options of a run of the pack.

    Attributes:
        most: the most cases of a triple; None for all.
        filter: regular expression searched in names of cases; empty for all.
        dump: folder for files that reproduce a failure; None for none.
    """

    most: int | None = None
    filter: str = ""
    dump: Path | None = None


class PackSession:
    """A runner that is replaced when its driver has died."""

    def __init__(self, make: Callable[[], Runner]) -> None:
        """Begin without a runner; `make` makes a connected one."""
        self._make = make
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """A connected runner."""
        if self._runner is None:
            self._runner = self._make()
        return self._runner

    def close(self) -> None:
        """Close the runner; the next use makes another one."""
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                runner.close()
            except NnburstError:
                pass  # the driver has died


def run(
    triples: Iterable[Triple], session: PackSession, options: PackOptions
) -> Iterator[tuple[TripleResult, list[Case]]]:
    """Run the cases of each triple; yields its result and the cases that passed."""
    for triple in triples:
        yield _try_triple(triple, session, options)


def _try_triple(
    triple: Triple, session: PackSession, options: PackOptions
) -> tuple[TripleResult, list[Case]]:
    skipped: Counter[str] = Counter()
    passed: list[Case] = []
    failures: list[Failure] = []
    for number, case in enumerate(cases(triple)):
        if number == options.most or len(failures) == _ENOUGH:
            break
        if number == SCREENED and not passed and not failures:
            break
        if not re.search(options.filter, case.name):
            continue
        try:
            reason = _problem(case, session)
        except Unsupported as error:
            skipped[f"{error} ({triple.kind.name})"] += 1
            continue
        if reason is None:
            passed.append(case)
        else:
            failures.append(Failure(case.name, reason, _dumped(case, options.dump)))
    result = TripleResult(
        triple.operation.name, triple.kind.name, triple.rank, len(passed), tuple(failures), skipped
    )
    return result, passed


def _problem(case: Case, session: PackSession) -> str | None:
    try:
        return problem_of(case, session.runner)
    except Unsupported:
        raise
    except (DeadObject, DeviceUnavailable) as error:
        session.close()
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        session.close()
        return f"crashed with {type(error).__name__}: {error}"


def _dumped(case: Case, folder: Path | None) -> str:
    if folder is None:
        return ""
    path = folder / f"{case.name}.json.gz"
    write(path, as_vector(case.graph, tolerance=tolerance_for(case.graph, [0])))
    return str(path)


#: Number of graphs of each class.
SEEDS: Final = 5
#: Attempts to draw an operation, for each operation that a graph is to have.
_DRAWS: Final = 8


def generate_supported(
    size: str,
    kind: OperandType,
    seed: int,
    operations: Collection[OperationType],
    is_supported: Callable[[RandomGraph, list[int]], bool],
) -> RandomGraph | None:
    """A random graph of supported operations; None if hardly any drawn operation is supported.

    Args:
        size: key of SIZES.
        kind: primary type.
        seed: the same seed gives the same graph for the same answers.
        operations: the operations to draw from.
        is_supported: whether a part of a graph (operation numbers, as for `as_vector`) is supported.
    """
    usable = [o for o in operations if kind in TEMPLATES[o].kinds]
    if not usable:
        return None
    rng = np.random.default_rng([list(SIZES).index(size), int(kind), seed, len(usable)])
    builder = GraphBuilder(rng, SIZES[size])
    wanted = builder.size.operations
    for _ in range(_DRAWS * wanted):
        before = len(builder.operands)
        if draw(builder, builder.choice(usable), kind):
            last = len(builder.operations) - 1
            part = RandomGraph("", size, tuple(builder.operands), tuple(builder.operations), ())
            if not is_supported(part, [last]):
                builder.operations.pop()
                del builder.operands[before:]
        if len(builder.operations) == wanted:
            break
    if not builder.operations:
        return None
    return builder.finish(f"supported_{size}_{kind.name.lower()}_{seed}", size)


def try_graphs(
    device: Device,
    runner: Runner,
    operations: Collection[OperationType],
    advance: Callable[[int, int], None],
) -> Iterator[CheckResult]:
    """Execute graphs drawn from these operations; one result for each size and type."""

    def is_supported(graph: RandomGraph, keep: list[int] | None = None) -> bool:
        built = build(as_vector(graph, keep))
        return not built.pools and all(device.supported_operations(built.model))

    classes = [(size, kind) for size in PRIMARY for kind in PRIMARY[size]]
    for number, (size, kind) in enumerate(classes):
        graphs = [
            graph
            for seed in range(SEEDS)
            if (graph := generate_supported(size, kind, seed, operations, is_supported))
        ]
        yield _tried(f"{size} {kind.name}", graphs, runner)
        advance(number + 1, len(classes))


def _tried(name: str, graphs: list[RandomGraph], runner: Runner) -> CheckResult:
    executed = 0
    for graph in graphs:
        try:
            problem = check(graph, runner)
        except Unsupported:
            continue
        executed += 1
        if problem is not None:
            kinds = ", ".join(sorted({o.kind.name for o in graph.operations}))
            return CheckResult("graphs", name, FAILED, f"{graph.name} of {kinds}: {problem}")
    if not executed:
        reason = "no random graph of this type is supported whole"
        return CheckResult("graphs", name, SKIPPED, reason)
    return CheckResult("graphs", f"{name} ({executed} graphs)", PASSED)


# -- Pairs and chains of operations ----------------------------------------------------------------


class Joined(NamedTuple):
    """The results of graphs of two or more operations.

    Attributes:
        executed: number of graphs that were executed.
        refused: number of graphs that the driver does not fully support.
        failures: failures of supported graphs.
    """

    executed: int
    refused: int
    failures: tuple[Failure, ...]


def try_joined(graphs: Iterable[RandomGraph | None], runner: Runner) -> Joined:
    """Execute graphs; None stands for a graph that could not be drawn and is skipped."""
    executed = refused = 0
    failures = []
    for graph in graphs:
        if graph is None:
            continue
        try:
            reason = check(graph, runner)
        except Unsupported:
            refused += 1
            continue
        except Exception as error:
            reason = f"raised {type(error).__name__}: {error}"
        executed += 1
        if reason is not None:
            failures.append(Failure(graph.name, reason))
    return Joined(executed, refused, tuple(failures))


def graphs_of(found: Iterable[Pair]) -> Iterator[RandomGraph | None]:
    """All graphs of these pairs."""
    return (graph_of(pair, number) for pair in found for number in range(SHAPES))


def some_pairs(
    kind: OperandType, most: int, operations: Collection[OperationType] | None = None, seed: int = 0
) -> list[Pair]:
    """Pairs in a random order.

    Args:
        kind: primary type of their first operations.
        most: the most pairs.
        operations: the operations of the pairs; all by default.
        seed: the same seed gives the same pairs.
    """
    known = set(OPERATIONS if operations is None else operations)
    found = [
        p for p in pairs([kind], sorted(known.intersection(OPERATIONS))) if p.producer in known
    ]
    order = np.random.default_rng(seed).permutation(len(found))
    return [found[i] for i in order[:most]]


#: The most pairs of each type that an assessment runs.
_PAIRS: Final = 50


def try_pairs(
    runner: Runner, operations: Collection[OperationType], advance: Callable[[int, int], None]
) -> Iterator[CheckResult]:
    """Execute some pairs of these operations; one result for each type."""
    kinds = PRIMARY["single"]
    for number, kind in enumerate(kinds):
        tried = try_joined(graphs_of(some_pairs(kind, _PAIRS, operations)), runner)
        name = f"pairs {kind.name}"
        if tried.failures:
            first = tried.failures[0]
            yield CheckResult("graphs", name, FAILED, f"{first.case}: {first.reason}")
        elif not tried.executed:
            reason = "no pair of operations of this type is supported whole"
            yield CheckResult("graphs", name, SKIPPED, reason)
        else:
            yield CheckResult("graphs", f"{name} ({tried.executed} graphs)", PASSED)
        advance(number + 1, len(kinds))


_O = OperationType
#: Operations without cases.
EXCLUSIONS: Final = {
    _O.LSH_PROJECTION: "hashes of seeds: agreement means copying the hash, not a second way",
    _O.LSTM: "a step of UNIDIRECTIONAL_SEQUENCE_LSTM, which has cases",
    _O.BOX_WITH_NMS_LIMIT: "which boxes stay depends on ties of scores: needs exact float32 order",
    _O.DETECTION_POSTPROCESSING: "as BOX_WITH_NMS_LIMIT",
    _O.GENERATE_PROPOSALS: "as BOX_WITH_NMS_LIMIT",
    _O.HEATMAP_MAX_KEYPOINT: "solves for a maximum between pixels; ties decide the pixel",
    _O.QUANTIZED_16BIT_LSTM: "defined by its integer arithmetic, which real numbers do not reproduce",
    _O.QUANTIZED_LSTM: "defined by its integer arithmetic, which real numbers do not reproduce",
    _O.RANDOM_MULTINOMIAL: "draws: only frequencies could be compared",
    _O.IF: "chooses between graphs, which cases of one operation do not have",
    _O.WHILE: "repeats graphs, which cases of one operation do not have",
    _O.RANK: "its result is known without executing",
}
#: For operations with cases, the types without cases.
LEFT_OUT_TYPES: Final = {
    (
        _O.DIV,
        OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    ): "models with it are valid, NNAPI computes none",
}


def left_out() -> dict[str, str]:
    """Reasons for missing cases by OPERATION and by OPERATION:TYPE, for reports."""
    operations = {operation.name: why for operation, why in sorted(EXCLUSIONS.items())}
    types = {f"{o.name}:{kind.name}": why for (o, kind), why in sorted(LEFT_OUT_TYPES.items())}
    return {**operations, **types}
