"""Random graphs over random devices: a plan computes what the whole model does, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.errors import NnburstError
from nnburst.testing.conformance.runners import LocalRunner
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs import PRIMARY, generate
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.partitioning.check_plan import broken_rules
from nnburst.testing.partitioning.drawn_device import draw_devices
from nnburst.testing.partitioning.plan_runner import PlanRunner

#: Classes of graphs, of 5 and of 40 operations.
SIZES: Final = ("small", "large")
#: Of so many plans one has devices that refuse and fail.
_FAULTY_EVERY: Final = 3


class Finding(NamedTuple):
    """One graph over its devices.

    Attributes:
        graph: its name.
        reason: what is wrong; empty if nothing is.
        counts: plans, steps and fallbacks, as `PlanRunner` counts them.
    """

    graph: str
    reason: str
    counts: Counter[str]


def run_seeds(seeds: range) -> Iterator[Finding]:
    """A graph for each seed, small and large ones in turn, over one to four random devices and the CPU."""
    local = LocalRunner("reference")
    for seed in seeds:
        size = SIZES[seed % 2]
        kind = PRIMARY[size][seed // 2 % len(PRIMARY[size])]
        graph = generate(size, kind, seed)
        rng = np.random.default_rng(seed)
        runner = PlanRunner(draw_devices(rng, faults=seed % _FAULTY_EVERY == 0))
        vector = as_vector(graph)
        model, pools = (built := build(vector)).model, built.pools
        inputs = [vector.array_of(operand) for operand in vector.inputs]
        sizes = [max(1, len(vector.buffers[o.data or 0])) for o in vector.outputs]
        try:
            found = runner.prepare(model, pools).run(inputs, sizes)
            expected = local.prepare(model, pools).run(inputs, sizes)
        except NnburstError as error:
            yield Finding(graph.name, f"{error.status.name}: {error}", runner.counts)
            continue
        assert runner.last_plan is not None
        assert runner.last_source is not None
        broken = broken_rules(runner.last_plan, runner.last_source, runner.devices)
        different = [
            f"output {n} differs"
            for n, (a, b) in enumerate(zip(found.outputs, expected.outputs, strict=True))
            if a != b[: len(a)]
        ]
        if found.status is not expected.status:
            different.append(f"{found.status.name}, expected {expected.status.name}")
        yield Finding(graph.name, "; ".join([*broken, *different]), runner.counts)
