"""Random graphs of nothing but what one driver supports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np

from nnburst.client.device import Device
from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.conformance.run_result import Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.models.random_graphs.builder import SIZES, GraphBuilder, RandomGraph
from nnburst.testing.models.random_graphs.check import check
from nnburst.testing.models.random_graphs.generate import PRIMARY, draw
from nnburst.testing.models.random_graphs.templates import TEMPLATES
from nnburst.testing.report.results import FAILED, PASSED, SKIPPED, CheckResult

#: Graphs of each class.
SEEDS: Final = 5
#: Operations drawn for each that a graph is to have.
_DRAWS: Final = 8


def generate_supported(
    size: str,
    kind: OperandType,
    seed: int,
    operations: Collection[OperationType],
    is_supported: Callable[[RandomGraph, list[int]], bool],
) -> RandomGraph | None:
    """A random graph of supported operations; None if hardly any that is drawn is supported.

    Args:
        size: key of SIZES.
        kind: primary type.
        seed: the same seed gives the same graph for the same answers.
        operations: what is drawn from.
        is_supported: whether a part of a graph is (operation numbers, as for `as_vector`).
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
