"""Operators of ONNX files and those that read their results compute as onnxruntime does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="what results are compared with")

import nnburst
from importer.onnx.chains import OPERATORS, File, chain, grow
from importer.onnx.graphs import Array
from nnburst.bench.network.networks import onnx_session
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.conformance.comparison import Unsupported
from nnburst.testing.conformance.runners import LocalPrepared, LocalRunner

ENGINES = ("litert", "onnxruntime", "reference")


def wrong(files: Iterable[File | None], runner: LocalRunner) -> tuple[dict[str, str], Counter[str]]:
    """The reasons why files are wrong, by their operators; and the numbers of files by outcome."""
    reasons: dict[str, str] = {}
    became: Counter[str] = Counter()
    for file in files:
        if file is None:
            became["not drawn"] += 1
            continue
        content = file.model.SerializeToString()
        expected = onnx_session(content).run(None, {"x": file.x})
        try:
            imported = nnburst.load(content, as_graph=False)
            prepared = runner.prepare(imported.model, [bytes(pool) for pool in imported.pools])
        except (InvalidArgument, Unsupported):
            became["refused"] += 1
            continue
        became["executed"] += 1
        reason = problem(file, imported, prepared, expected[0])
        if reason:
            reasons[file.name] = reason
    return reasons, became


def problem(file: File, imported: ImportedModel, prepared: LocalPrepared, expected: Array) -> str:
    """The reason why the result is wrong; empty if it is right, or if it depends on how an engine rounds."""
    main = imported.model.main
    given = file.x.reshape(main.operands[main.input_indexes[0]].dimensions)
    try:
        result = prepared.run([given], [expected.nbytes])
    except NnburstError as error:
        return str(error)
    finally:
        prepared.close()
    if result.status is not ErrorStatus.NONE:
        return f"{result.status.name}: {result.message}"
    found = difference(np.frombuffer(result.outputs[0], np.float32), expected)
    return found if found and is_steady(file, expected) else ""


def difference(found: Array, expected: Array) -> str:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    off = np.abs(expected.reshape(-1) - found.reshape(-1))
    return "" if (off <= 2e-4 * scale).all() else f"off by {off.max()} of {scale}"


def is_steady(file: File, expected: Array) -> bool:
    """Whether other rounding gives the same result."""
    (found,) = onnx_session(file.shaken.SerializeToString()).run(None, {"x": file.x})
    return not difference(found, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_operator_is_read_by_clamps_and_by_a_sum(engine: str) -> None:
    names = sorted(OPERATORS)
    files = (
        grow([name, reader], place)
        for place, name in enumerate(names)
        for reader in (("Relu6", "Add", "Relu1")[place % 3],)
    )
    reasons, became = wrong(files, LocalRunner(engine))
    assert reasons == {}
    assert became["executed"] > len(names) / 2


def test_only_results_that_other_rounding_changes_are_not_compared() -> None:
    plain = grow(["Conv", "Relu", "Softmax"], 0)
    # Each element becomes 1 or -1, whose mean may be 0, or nearly 0 by other rounding: then 1 or -1 again.
    signs = grow(["LpNormalization", "GlobalAveragePool", "LpNormalization"], 5 * 62036)
    assert plain is not None
    assert signs is not None
    for file, steady in ((plain, True), (signs, False)):
        (expected,) = onnx_session(file.model.SerializeToString()).run(None, {"x": file.x})
        assert is_steady(file, expected) is steady


@pytest.mark.parametrize("engine", ENGINES)
def test_some_chains_of_operators_give_what_onnxruntime_gives(engine: str) -> None:
    reasons, became = wrong((chain(2 + n % 5, n) for n in range(40)), LocalRunner(engine))
    assert reasons == {}
    assert became["executed"] > 10


@pytest.mark.campaign
@pytest.mark.parametrize("engine", ENGINES)
def test_pairs_of_operators_give_what_onnxruntime_gives(engine: str) -> None:
    names = sorted(OPERATORS)
    pairs = [(a, b) for a in names for b in names]
    order = np.random.default_rng(0).permutation(len(pairs))[: 10 * environment.PAIRS.read()]
    reasons, _ = wrong((grow(list(pairs[i]), int(i)) for i in order), LocalRunner(engine))
    assert reasons == {}


@pytest.mark.campaign
@pytest.mark.parametrize("engine", ENGINES)
def test_chains_of_operators_give_what_onnxruntime_gives(engine: str) -> None:
    seeds = range(40, 40 + min(2000, 10 * environment.PAIRS.read()))
    reasons, _ = wrong((chain(3 + n % 4, n) for n in seeds), LocalRunner(engine))
    assert reasons == {}
