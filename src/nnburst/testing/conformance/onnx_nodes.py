"""Imports and executes the node tests of the `onnx` package, and counts those that pass or are refused.

    python -m nnburst.testing.conformance.onnx_nodes [--executor litert] [--only LSTM]

Only cases that NNAPI could express are counted: one node of ONNX's own domain, an operator in `OPERATORS`,
element types of NNAPI, rank at most 4, no empty tensors. All inputs are inputs of the model if the importer
accepts that. If not, inputs that steer the node become constants, as in real networks, and finally all but
the first. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.base import Argument, Executor
from nnburst.executor.built_in import BUILT_IN
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, NnburstError
from nnburst.hal.model import DTYPES
from nnburst.hal.validation import validate_model
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load

Array = npt.NDArray[Any]

_EXECUTORS: Final = ("reference", "litert", "onnxruntime")

_NAMES: Final = """
Abs Add And ArgMax ArgMin Attention AveragePool BatchNormalization Cast CastLike Ceil Celu Clip Concat
Constant ConstantOfShape Conv ConvTranspose Cos DepthToSpace DequantizeLinear Div Dropout Elu
Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements Gelu Gemm GlobalAveragePool
GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity
InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
LpNormalization MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg Not Or
PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN Range Reciprocal
ReduceL1 ReduceL2 ReduceLogSum ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize RotaryEmbedding Round Selu Shape Sigmoid Sign Sin Size Slice Softmax
Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tanh ThresholdedRelu Tile
TopK Transpose Unsqueeze Upsample Where Xor
"""
#: Operators that one or several operations of NNAPI can express.
OPERATORS: Final = frozenset(_NAMES.split())
_TYPES: Final = frozenset({"float32", "float16", "int32", "int64", "bool", "uint8", "int8"})


@dataclass(frozen=True, slots=True)
class NodeCase:
    """A node test.

    Attributes:
        name: name of the test.
        operator: the operator that it tests.
        model: the ModelProto.
        inputs: inputs by name.
        outputs: expected outputs, in order.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """

    name: str
    operator: str
    model: Any
    inputs: dict[str, Array]
    outputs: list[Array]
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict on a case: "pass", "wrong" or "refused", and the reason."""

    case: NodeCase
    outcome: str
    reason: str = ""


def cases() -> Iterator[NodeCase]:
    """The cases that NNAPI could express."""
    collect = import_module("onnx.backend.test.case.node").collect_testcases
    for found in collect(None):
        graph = found.model.graph
        if len(graph.node) != 1 or graph.node[0].domain not in ("", "ai.onnx"):
            continue
        if graph.node[0].op_type not in OPERATORS:
            continue
        given, expected = (list(map(_plain, arrays)) for arrays in found.data_sets[0])
        # A value without elements only gives a type.
        counted = given[:1] if "castlike" in found.name else given
        if all(_can_be_said(array) for array in (*counted, *expected)):
            yield NodeCase(
                found.name,
                graph.node[0].op_type,
                found.model,
                {info.name: np.asarray(a) for info, a in zip(graph.input, given, strict=True)},
                [np.asarray(a) for a in expected],
                found.rtol,
                found.atol,
            )


def files() -> list[bytes]:
    """The .onnx files of all cases, smaller than 400 bytes each.

    Raises:
        DeviceUnavailable: the package `onnx` is not installed.
    """
    if find_spec("onnx") is None:
        raise DeviceUnavailable("the node tests need the package onnx: pip install onnx")
    with warnings.catch_warnings():  # some cases divide by zero on purpose
        warnings.simplefilter("ignore", RuntimeWarning)
        return [bytes(case.model.SerializeToString()) for case in cases()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - arrays, scalars, lists, None, tensors of a file
    """Convert a test's tensor to an array; tests of casts have tensors of the file format."""
    if not hasattr(value, "data_type"):
        return value
    return import_module("onnx.numpy_helper").to_array(value)


def _can_be_said(array: Any) -> bool:  # noqa: ANN401 - arrays, scalars, lists, None
    if isinstance(array, np.generic):
        array = np.asarray(array)
    return (
        isinstance(array, np.ndarray)
        and array.dtype.name in _TYPES
        and array.ndim <= 4
        and array.size > 0
    )


def judge(case: NodeCase, executor: Executor) -> NodeVerdict:
    """Import and execute a case, and compare its results."""
    refused = ""
    for known in _frozen(case):
        try:
            imported = load(_content(case, known), as_graph=False)
            validate_model(imported.model, SIGNATURES)
            results = _executed(
                executor, imported, [a for n, a in case.inputs.items() if n not in known]
            )
        except NnburstError as error:
            refused = str(error)  # the last reason is that of the file with the fewest inputs
            continue
        wrong = _difference(case, results)
        return NodeVerdict(case, "wrong" if wrong else "pass", wrong)
    return NodeVerdict(case, "refused", refused)


def _frozen(case: NodeCase) -> list[frozenset[str]]:
    """Sets of inputs to make constant, from no input to all but the first."""
    names = list(case.inputs)
    steering = frozenset(n for n in names[1:] if case.inputs[n].dtype.kind in "iub")
    weights = frozenset(names[1:])
    options = [frozenset[str](), steering, weights]
    if all(a.ndim == 0 for a in case.inputs.values()) or (
        len(names) < 2 and all(case.inputs[n].dtype.kind == "i" for n in names)
    ):
        options.append(frozenset(names))
    return list(dict.fromkeys(options))


def _content(case: NodeCase, known: frozenset[str]) -> bytes:
    """The file's bytes, with some inputs turned into initializers."""
    if not known:
        return bytes(case.model.SerializeToString())
    helper = import_module("onnx.numpy_helper")
    model = type(case.model)()
    model.CopyFrom(case.model)
    kept = [info for info in model.graph.input if info.name not in known]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(
        helper.from_array(case.inputs[name], name) for name in sorted(known)
    )
    return bytes(model.SerializeToString())


def _executed(executor: Executor, imported: ImportedModel, values: Sequence[Array]) -> list[Array]:
    main = imported.model.main
    given = [_room(main.operands[i]) for i in main.input_indexes]
    results = [_room(main.operands[i]) for i in main.output_indexes]
    for room, value in zip(given, values, strict=True):
        room[...] = value.reshape(room.shape)
    prepared = executor.prepare(imported.model, list(imported.pools))
    execution = prepared.bind([_argument(a) for a in given], [_argument(a) for a in results])
    outcome = execution.run()
    execution.close()
    prepared.close()
    if outcome.status != ErrorStatus.NONE:
        raise InvalidArgument(f"{outcome.status.name}: {outcome.message}")
    return results


def _room(operand: Any) -> Array:  # noqa: ANN401 - an operand
    return np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])


def _argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape)


def _difference(case: NodeCase, results: Sequence[Array]) -> str:
    """The difference between the results and the expected ones; "" if they are equal."""
    for at, (expected, found) in enumerate(zip(case.outputs, results, strict=True)):
        if expected.ndim and expected.shape != found.shape:
            return f"output {at} has shape {found.shape}, expected {expected.shape}"
        found = found.reshape(expected.shape)
        if expected.dtype.kind in "iub":
            steps = 1 if case.operator.startswith("QLinear") else 0
            off = np.abs(found.astype(np.int64) - expected.astype(np.int64)).max()
            if off > steps:
                return f"output {at} is off by {off}"
            continue
        rtol = max(case.rtol, 1e-2) if expected.dtype == np.float16 else case.rtol
        atol = max(case.atol, 1e-3 if expected.dtype == np.float16 else 1e-6)
        if not np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True):
            with np.errstate(all="ignore"):
                off = np.nanmax(np.abs(found.astype(np.float64) - expected.astype(np.float64)))
            return f"output {at} is off by {off:.3g}"
    return ""


def table(verdicts: Sequence[NodeVerdict]) -> list[tuple[str, int, int, int]]:
    """A table of the numbers of passed, wrong and refused cases by operator."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(verdict.case.operator, Counter())[verdict.outcome] += 1
    return [(name, c["pass"], c["wrong"], c["refused"]) for name, c in sorted(counts.items())]


def main(arguments: Sequence[str]) -> int:
    """Print the table, and the refused and wrong cases; returns 1 if a case was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", default="reference", choices=_EXECUTORS)
    parser.add_argument("--only", default="", help="operator")
    parser.add_argument("--reasons", action="store_true", help="why cases were refused")
    args = parser.parse_args(arguments)
    executor = BUILT_IN[args.executor]()
    verdicts = [judge(case, executor) for case in cases() if args.only in ("", case.operator)]
    for name, passed, wrong, refused in table(verdicts):
        sys.stdout.write(f"{name:28} {passed:4} pass {wrong:4} wrong {refused:4} refused\n")
    for verdict in verdicts:
        if verdict.outcome == "wrong" or (args.reasons and verdict.outcome == "refused"):
            sys.stdout.write(f"{verdict.outcome}: {verdict.case.name}: {verdict.reason}\n")
    total = Counter(verdict.outcome for verdict in verdicts)
    sys.stdout.write(
        f"{len(verdicts)} cases: {total['pass']} pass, {total['wrong']} wrong, {total['refused']} refused\n"
    )
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
