"""Translates an ONNX file to a model, node by node."""

from __future__ import annotations

import heapq
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.budget import Budget
from nnburst.formats.onnx_model import (
    Attribute,
    FunctionProto,
    GraphProto,
    NodeProto,
    OnnxFile,
    ValueInfo,
)
from nnburst.formats.onnx_tensor import DTYPES, ELEMENT_NAMES, ExternalData, TensorProto
from nnburst.formats.protobuf import DEEPEST, Malformed
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument, NnburstError, keyed_value, spelt
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import DTYPES as OPERAND_DTYPES
from nnburst.hal.model import MemoryPool, Model, refuse_masked, size_bytes
from nnburst.importer.imported_model import ImportedModel, State
from nnburst.importer.onnx import operators
from nnburst.importer.onnx.folding import folded
from nnburst.importer.onnx.graph import OnnxGraph
from nnburst.importer.onnx.node import (
    TABLE,
    Node,
    Quantization,
    output_dtype,
    parameters,
    quantized_type,
)
from nnburst.importer.onnx.tensor import Array, Tensor, constant, identity, operand_type
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import QUANT8, ConstantPool, Refused, TensorType, as_graph_hint

#: Operators that keep or limit quantised numbers: a QuantizeLinear behind them applies to a convolution
#: before.
_PASSES: Final = frozenset(
    {"Relu", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Identity"}
)


class Scope:
    """The tensors of a graph or function by name; lookups go on in the enclosing scope.

    Attributes:
        nodes: the nodes of the graph or function, as its file has them.
        order: their numbers, each after those of the nodes that it reads from. onnxruntime takes files in any
            order, too.
        outputs: names of its outputs.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        outputs: Sequence[str],
        initializers: Mapping[str, TensorProto],
        decode: Callable[[TensorProto], Array],
        budget: Budget,
        outer: Scope | None = None,
    ) -> None:
        """Begin with the nodes of a graph or function, and its outputs."""
        budget.spend(_WALK_COST * len(outputs))
        self.nodes = nodes
        self.order = _order(nodes, budget)
        self.outputs = tuple(outputs)
        self._initializers = initializers
        self._decode = decode
        self._budget = budget
        self._outer = outer
        self._tensors: dict[str, Tensor] = {}
        self._omitted: set[str] = set()
        self._readers: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in (*node.inputs, *_captured(node, budget)):
                self._readers.setdefault(name, []).append(node)

    def find(self, name: str) -> Tensor | None:
        """The tensor of this name; None if it is not defined."""
        found = self._tensors.get(name)
        if found is None and name in self._initializers:
            found = self._tensors[name] = constant(self._decode(self._initializers[name]))
        if found is None and self._outer is not None:
            return self._outer.find(name)
        return found

    def get(self, name: str) -> Tensor:
        """The tensor of this name, which must be defined."""
        found = self.find(name)
        if found is None:
            raise Malformed(f"{name!r} is read before it is written")
        return found

    def optional(self, name: str) -> Tensor | None:
        """The tensor of an input; None if its name is empty, or an input that the function's call omits."""
        if not name or (self._omits(name) and self.find(name) is None):
            return None
        return self.get(name)

    def omit(self, name: str) -> None:
        """Mark an input of the function as omitted by its call."""
        self._omitted.add(name)

    def _omits(self, name: str) -> bool:
        return name in self._omitted or (self._outer is not None and self._outer._omits(name))

    def define(self, name: str, tensor: Tensor) -> None:
        """Define the tensor of a name."""
        if name in self._tensors:
            raise Malformed(f"{name!r} is written twice")
        self._tensors[name] = tensor

    def holds(self, name: str) -> bool:
        """Whether the file holds the value of a name of this scope."""
        return name in self._initializers

    def needed(self) -> list[bool]:
        """For each node, whether an output depends on it."""
        wanted = set(self.outputs)
        found = [False] * len(self.nodes)
        for at in reversed(self.order):
            node = self.nodes[at]
            if any(name and name in wanted for name in node.outputs):
                found[at] = True
                wanted.update(node.inputs)
                wanted.update(_captured(node, self._budget))
        return found

    def quantizer(self, node: NodeProto) -> NodeProto | None:
        """The QuantizeLinear that is a node's only reader, directly or behind operators that keep values."""
        for _ in range(8):
            name = node.outputs[0] if node.outputs else ""
            readers = self._readers.get(name, [])
            if len(readers) != 1 or name in self.outputs or name not in readers[0].inputs[:1]:
                return None
            node = readers[0]
            if node.op_type == "QuantizeLinear" and not node.domain:
                return node
            if node.op_type not in _PASSES or node.domain:
                return None
        return None

    def readers(self, name: str) -> list[NodeProto]:
        """Nodes of this scope that read a name, themselves or in their subgraphs."""
        return self._readers.get(name, [])


def _order(nodes: Sequence[NodeProto], budget: Budget) -> Sequence[int]:
    """Numbers of nodes, each after its writers and otherwise as in the file; those of a circle at the end."""
    writers = {name: at for at, node in enumerate(nodes) for name in node.outputs if name}

    def read_by(node: NodeProto) -> set[int]:
        names = (*node.inputs, *_captured(node, budget))
        return {writers[name] for name in names if name in writers}

    if all(max(read_by(node), default=-1) < at for at, node in enumerate(nodes)):
        return range(len(nodes))
    waits = [read_by(node) for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for at, writing in enumerate(waits):
        for writer in writing:
            readers[writer].append(at)
    ready = [at for at, writing in enumerate(waits) if not writing]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waits[reader].remove(order[-1])
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order + [at for at, writing in enumerate(waits) if writing]


def _captured(node: NodeProto, budget: Budget) -> Iterable[str]:
    """Names that a node's subgraphs may read from the enclosing scope, and some that they do not.

    Each walk is charged: a loop and a function are walked as often as they are entered.
    """
    for attribute in node.attributes.values():
        graphs = attribute.value if isinstance(attribute.value, list) else [attribute.value]
        budget.spend(_WALK_COST + len(graphs))
        for graph in graphs:
            if isinstance(graph, GraphProto):
                yield from (output.name for output in graph.outputs)
                for inner in graph.nodes:
                    budget.spend(_WALK_COST * (1 + len(inner.inputs)))
                    yield from inner.inputs
                    yield from _captured(inner, budget)


# -- The translation of a whole file ---------------------------------------------------------------


assert operators.__all__  # the import fills the table

#: Bytes charged for a node, rounded up generously: a function may be called in many places.
_NODE_COST: Final = 4096
#: Work charged for a name or an attribute that is looked at.
_WALK_COST: Final = 32
#: Bytes charged for a node of a function's branches and loops, which each call copies.
_COPY_COST: Final = 1024
#: The most rounds that a loop is unrolled into.
_MOST_ROUNDS: Final = 256
_OLDEST: Final = 7
#: Errors of a translation whose inputs or attributes do not fit their operator.
_UNFIT: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
#: Element types of ONNX that neither NNAPI nor numpy has.
_OTHER_TYPES: Final = frozenset(ELEMENT_NAMES) - {"undefined"} - DTYPES.keys()
#: Prefixes of the operators whose inputs are integers followed by their step and zero point.
_READING_INTEGERS: Final = ("DequantizeLinear", "QLinear", "QGemm")


class OnnxTranslation:
    """Translates one file, once."""

    def __init__(
        self,
        file: OnnxFile,
        external: ExternalData,
        shapes: Mapping[str, Sequence[int]],
        constants: Mapping[str, npt.ArrayLike],
        states: Mapping[str, str],
        *,
        exact: bool,
    ) -> None:
        """Begin with a file that was parsed.

        Args:
            file: the file.
            external: reads external data files.
            shapes: shapes of inputs whose dimensions are open.
            constants: values of inputs that are the same in every execution.
            states: inputs that receive an output of the previous execution.
            exact: whether 8-bit weights are multiplied as real numbers, without rounding the other factor.
        """
        self._file = file
        self._external = external
        self._shapes = dict(shapes)
        self._values = dict(constants)
        self._states = dict(states)
        self._exact = exact
        self._constants = ConstantPool(file.budget)
        self._graph = OnnxGraph(file.budget, self._constants)

    def run(self) -> ImportedModel:
        """Translate the file; the imported model.

        Raises:
            InvalidArgument: the file is not intact, or NNAPI cannot express its network.
        """
        try:
            return self._translated()
        except NnburstError:
            raise
        except _UNFIT as error:
            raise Malformed(f"its parts do not fit each other: {error}") from error

    def _translated(self) -> ImportedModel:
        graph = self._file.graph
        version = self._file.opsets.get("", 0)
        if version < _OLDEST:
            raise Refused(f"operators of version {version}, expected {_OLDEST} or later")
        if graph.sparse:
            raise Refused(f"sparse initializers; {as_graph_hint()}")
        scope = Scope(
            graph.nodes,
            [o.name for o in graph.outputs],
            graph.initializers,
            self._decode,
            self._file.budget,
        )
        open_ones = [info for info in graph.inputs if info.name not in graph.initializers]
        names = [info.name for info in open_ones]
        for option, values in (("shapes", self._shapes), ("constants", self._values)):
            for unknown in values.keys() - set(names):
                raise InvalidArgument(
                    f"{spelt(option, unknown)}: not an input of the network, its inputs are {names}"
                )
        for info in open_ones:
            if info.name in self._values:
                scope.define(info.name, self._known(info))
        given = [info for info in open_ones if info.name not in self._values]
        for info in given:
            scope.define(info.name, self._input(info, scope))
        self._translate(scope, self._file.opsets, "", 0)
        outputs = [self._output(scope, info.name) for info in graph.outputs]
        return self._finished(given, outputs)

    # -- Inputs, outputs and states

    def _input(self, info: ValueInfo, scope: Scope) -> Tensor:
        if not info.is_tensor or info.element not in DTYPES:
            raise Refused(
                f"input {info.name!r} is {info.element}, which is not a tensor type of NNAPI;"
                f" {as_graph_hint()}"
            )
        shape = self._shape(info)
        dtype = DTYPES[info.element]
        try:
            kind = TensorType(operand_type(dtype), shape or (1,))
        except Refused as refused:
            raise Refused(f"input {info.name!r}: {refused}; {as_graph_hint()}") from None
        if size_bytes(kind.type, kind.dimensions) > UINT32_MAX:
            raise Refused(
                f"input {info.name!r} of shape {list(shape)} is larger than an operand can be"
            )
        if kind.type in QUANT8:
            kind = self._integers(info.name, kind, scope)
        return Tensor(shape, dtype, value=self._graph.add_input(kind), order=identity(len(shape)))

    def _known(self, info: ValueInfo) -> Tensor:
        """An input whose value is the same in every execution."""
        if info.element not in DTYPES:
            raise Refused(f"input {info.name!r} is {info.element}, expected a tensor of numbers")
        name = spelt("constants", info.name)
        array = _cast(name, self._values[info.name], DTYPES[info.element])
        if info.shape is not None:
            said = tuple(e if isinstance(e, int) and e > 0 else -1 for e in info.shape)
            fits = len(said) == array.ndim and all(
                want in (-1, have) for want, have in zip(said, array.shape, strict=True)
            )
            if not fits:
                raise InvalidArgument(
                    f"{name} has shape {array.shape}, the file declares {list(said)}"
                )
        return constant(array)

    def _shape(self, info: ValueInfo) -> tuple[int, ...]:
        wanted = self._shapes.get(info.name)
        found = info.shape if wanted is None else tuple(wanted)
        if found is None:
            raise Refused(
                f"input {info.name!r} has an open rank: give {keyed_value('shapes', info.name, '…')}"
            )
        if wanted is not None and info.shape is not None:
            fits = len(found) == len(info.shape) and all(
                not isinstance(said, int) or said <= 0 or said == have
                for said, have in zip(info.shape, found, strict=True)
            )
            if not fits:
                raise InvalidArgument(
                    f"{spelt('shapes', info.name)}: {list(found)},"
                    f" the file declares {list(info.shape)}"
                )
        if not all(map(_is_extent, found)):
            said = ", ".join("?" if e is None else str(e) for e in found)
            example = ", ".join("…" if not _is_extent(e) else str(e) for e in found)
            raise Refused(
                f"input {info.name!r} has open dimensions ({said}):"
                f" give {keyed_value('shapes', info.name, example)}"
            )
        return tuple(int(extent) for extent in found if extent is not None)

    def _integers(self, name: str, kind: TensorType, scope: Scope) -> TensorType:
        """The type of an integer input: quantised as its reader dequantises it, else with a step of 1."""
        for proto in scope.readers(name):
            if proto.op_type.startswith(_READING_INTEGERS) and name in proto.inputs:
                at = proto.inputs.index(name)
                names = proto.inputs[at + 1 : at + 3]
                if len(names) == 2 and all(scope.holds(each) for each in names):
                    node = self._node(proto, 13, [scope.get(each) for each in names])
                    return quantized_type(parameters(node, 0, 1), kind.dimensions)
        return replace(kind, scale=1.0)

    def _output(self, scope: Scope, name: str) -> Tensor:
        found = self._graph.real(scope.get(name))
        if not found.elements:
            raise Refused(
                f"output {name!r} of shape {list(found.shape)}: NNAPI has no extents of 0"
            )
        return found

    def _stored(self, name: str, tensor: Tensor) -> Value:
        """An output's operand, with its axes in the file's order."""
        try:
            return self._graph.stored(tensor)
        except Refused as refused:
            raise Refused(
                f"output {name!r} cannot be imported: {refused}; {as_graph_hint()}"
            ) from None

    def _finished(self, given: Sequence[ValueInfo], outputs: Sequence[Tensor]) -> ImportedModel:
        graph = self._file.graph
        self._graph.origin = "output"
        main = self._graph.finish(
            [
                self._stored(info.name, each)
                for info, each in zip(graph.outputs, outputs, strict=True)
            ]
        )
        pools = self._constants.fill()
        names = [info.name for info in given], [info.name for info in graph.outputs]
        model = Model(
            main=main,
            operand_values=bytes(self._constants.values),
            pools=tuple(MemoryPool(pool.nbytes, at) for at, pool in enumerate(pools)),
            relax_computation_float32_to_float16=(
                self._graph.has_eight_bit_weights and not self._exact
            ),
        )
        return ImportedModel(
            model=model,
            pools=pools,
            input_names=tuple(names[0]),
            output_names=tuple(names[1]),
            states=self._made_states(model, *names),
            metadata={key: value.encode() for key, value in self._file.metadata.items()},
            description=self._file.description,
            operators=tuple(self._graph.origins),
        )

    def _made_states(
        self, model: Model, inputs: Sequence[str], outputs: Sequence[str]
    ) -> tuple[State, ...]:
        states = []
        for into, out in self._states.items():
            if into not in inputs or out not in outputs:
                names = f"the inputs are {list(inputs)}, the outputs {list(outputs)}"
                raise InvalidArgument(f"{spelt('states')}: {into!r} from {out!r}, {names}")
            main = model.main
            at, of = inputs.index(into), outputs.index(out)
            operand, written = (
                main.operands[main.input_indexes[at]],
                main.operands[main.output_indexes[of]],
            )
            if (operand.type, operand.dimensions) != (written.type, written.dimensions):
                raise InvalidArgument(
                    f"states: {into!r} is {list(operand.dimensions)}, {out!r} {list(written.dimensions)}"
                )
            self._file.budget.spend(size_bytes(OperandType(operand.type), operand.dimensions))
            dtype = OPERAND_DTYPES[OperandType(operand.type)]
            initial = np.full(operand.dimensions, operand.zero_point, dtype)
            initial.flags.writeable = False
            states.append(State(into, at, of, initial))
        return tuple(states)

    # Nodes

    def _decode(self, tensor: TensorProto) -> Array:
        if tensor.element in _OTHER_TYPES:
            raise Refused(f"tensor {tensor.name!r} is {tensor.element}, which NNAPI does not have")
        if not tensor.is_external and tensor.element in DTYPES:
            self._file.budget.spend(256 + tensor.converted)
        return tensor.array(self._external.bytes_of)

    def _node(
        self,
        proto: NodeProto,
        version: int,
        inputs: Sequence[Tensor | None],
        into: Quantization | None = None,
    ) -> Node:
        return Node(proto, version, self._graph, inputs, self._decode, into)

    def _translate(self, scope: Scope, opsets: Mapping[str, int], where: str, depth: int) -> None:
        """Translate the nodes of a scope, each after those that it reads from."""
        if depth > DEEPEST:
            raise Malformed(f"functions and branches are nested more than {DEEPEST} deep")
        needed = scope.needed()
        for at in scope.order:
            proto = scope.nodes[at]
            self._file.budget.spend(_NODE_COST)
            if not needed[at]:
                continue
            name = f" {proto.name!r}" if proto.name else ""
            said = f"{where}node {at}{name} ({proto.op_type})"
            self._graph.origin = f"{where}{at} {proto.op_type}"
            try:
                self._one(proto, scope, opsets, f"{where}{at}.", depth)
            except Refused as error:
                text = str(error)
                known = text.startswith(f"{where}{at}.") or as_graph_hint() in text
                raise Refused(
                    text if known else f"{said} cannot be imported: {error}; {as_graph_hint()}"
                ) from None
            except InvalidArgument as error:
                raise InvalidArgument(f"{said}: {error}") from None
            except _UNFIT as error:
                raise InvalidArgument(
                    f"{said}: its parts do not fit each other: {error}"
                ) from error

    def _one(
        self, proto: NodeProto, scope: Scope, opsets: Mapping[str, int], where: str, depth: int
    ) -> None:
        function = self._file.functions.get((proto.domain, proto.op_type, proto.overload))
        if function is not None:
            self._call(function, proto, scope, where, depth)
            return
        if not proto.domain and proto.op_type in ("If", "Loop"):
            self._branch(proto, scope, opsets, where, depth)
            return
        inputs = [scope.optional(name) for name in proto.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        node = self._node(proto, opsets.get(proto.domain, 1), inputs, self._into(proto, scope))
        if not proto.domain and all(t is not None and t.is_known for t in inputs):
            results = folded(node)
            if results is not None:
                node.results = {at: constant(array) for at, array in enumerate(results)}
        if not node.results:
            translate = TABLE.get((proto.domain, proto.op_type))
            if translate is None:
                domain = f" of domain {proto.domain!r}" if proto.domain else ""
                raise Refused(f"NNAPI has no operation for {proto.op_type}{domain}")
            translate(node)
        for position, name in enumerate(proto.outputs):
            if name and position in node.results:
                scope.define(name, node.results[position])

    def _into(self, proto: NodeProto, scope: Scope) -> Quantization | None:
        """The quantisation of a node's output, if it is only read by a QuantizeLinear; else None."""
        quantizer = scope.quantizer(proto)
        if quantizer is None or len(quantizer.inputs) < 2:
            return None
        found = [scope.find(name) if name else None for name in quantizer.inputs[1:3]]
        if any(tensor is not None and not tensor.is_known for tensor in found) or found[0] is None:
            return None
        try:
            node = self._node(quantizer, 13, found)
            return parameters(node, 0, 1, output_dtype(node, np.dtype(np.uint8)))
        except Refused:
            return None  # the QuantizeLinear itself gives the reason

    def _call(
        self, function: FunctionProto, proto: NodeProto, scope: Scope, where: str, depth: int
    ) -> None:
        """Translate the nodes of a local function with the attributes of the calling node."""
        attributes = {**function.defaults, **proto.attributes}
        budget = self._file.budget
        budget.spend(_WALK_COST * len(function.inputs))
        nodes = [_with_attributes(node, attributes, budget) for node in function.nodes]
        inner = Scope(nodes, function.outputs, {}, self._decode, budget)
        given = [scope.optional(argument) for argument in proto.inputs[: len(function.inputs)]]
        for name, tensor in zip_longest(function.inputs, given):
            if tensor is None:
                inner.omit(name)
            else:
                inner.define(name, tensor)
        self._translate(inner, {**self._file.opsets, **function.opsets}, where, depth + 1)
        for name, result in zip(proto.outputs, function.outputs, strict=False):
            if name:
                scope.define(name, inner.get(result))

    def _branch(
        self, proto: NodeProto, scope: Scope, opsets: Mapping[str, int], where: str, depth: int
    ) -> None:
        """Translate an If with a known condition, or a loop with a known number of rounds."""
        if proto.op_type == "If":
            condition = scope.get(proto.inputs[0])
            if not condition.is_known:
                raise Refused("its condition is computed")
            taken = bool(condition.array().reshape(-1)[0])
            body = _subgraph(proto, "then_branch" if taken else "else_branch")
            results = self._inside(body, [], scope, opsets, where, depth)
        else:
            results = self._loop(proto, scope, opsets, where, depth)
        for name, tensor in zip(proto.outputs, results, strict=False):
            if name:
                scope.define(name, tensor)

    def _inside(
        self,
        body: GraphProto,
        arguments: Sequence[Tensor],
        scope: Scope,
        opsets: Mapping[str, int],
        where: str,
        depth: int,
    ) -> list[Tensor]:
        outputs = [output.name for output in body.outputs]
        budget = self._file.budget
        inner = Scope(body.nodes, outputs, body.initializers, self._decode, budget, scope)
        for info, argument in zip(body.inputs, arguments, strict=True):
            inner.define(info.name, argument)
        self._translate(inner, opsets, where, depth + 1)
        return [inner.get(name) for name in outputs]

    def _loop(
        self, proto: NodeProto, scope: Scope, opsets: Mapping[str, int], where: str, depth: int
    ) -> list[Tensor]:
        """Unroll a loop with a known number of rounds; refuse one that collects values over its rounds."""
        body = _subgraph(proto, "body")
        trips, going, *state = (scope.optional(name) for name in proto.inputs)
        carried = [tensor for tensor in state if tensor is not None]
        if len(body.outputs) != 1 + len(carried):
            raise Refused("it collects values over its rounds")
        if (trips is not None and not trips.is_known) or (going is not None and not going.is_known):
            raise Refused("its rounds are computed")
        most = int(trips.array().reshape(-1)[0]) if trips is not None else _MOST_ROUNDS + 1
        goes_on = going is None or bool(going.array().reshape(-1)[0])
        at = 0
        while goes_on and at < most:
            if at >= _MOST_ROUNDS:
                raise Refused(f"it has more than {_MOST_ROUNDS} rounds")
            arguments = [constant(np.array(at, np.int64)), constant(np.array(True)), *carried]
            condition, *carried = self._inside(body, arguments, scope, opsets, where, depth)
            if not condition.is_known:
                raise Refused("its condition is computed")
            goes_on = bool(condition.array().reshape(-1)[0])
            at += 1
        return carried


def _subgraph(proto: NodeProto, name: str) -> GraphProto:
    found = proto.attributes.get(name)
    if found is None or not isinstance(found.value, GraphProto):
        raise Malformed(f"attribute {name} is not a graph")
    return found.value


def _with_attributes(node: NodeProto, given: Mapping[str, Attribute], budget: Budget) -> NodeProto:
    """A function's node, with attributes that refer to the function's replaced by their values."""
    budget.spend(_COPY_COST + _WALK_COST * len(node.attributes))
    made: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if attribute.reference:
            if attribute.reference in given:
                made[name] = Attribute(name, given[attribute.reference].value)
        else:
            inside = _with_attributes_inside(attribute.value, given, budget)
            made[name] = replace(attribute, value=inside)
    return replace(node, attributes=made)


def _with_attributes_inside(
    value: Any,  # noqa: ANN401 - of any kind
    given: Mapping[str, Attribute],
    budget: Budget,
) -> Any:  # noqa: ANN401
    """An attribute's value, with those replaced that nodes of its graphs refer to."""
    if isinstance(value, GraphProto):
        nodes = tuple(_with_attributes(node, given, budget) for node in value.nodes)
        return replace(value, nodes=nodes)
    if isinstance(value, list):
        budget.spend(len(value))
        if any(isinstance(each, GraphProto) for each in value):
            return [_with_attributes_inside(each, given, budget) for each in value]
    return value


def _cast(name: str, value: object, dtype: np.dtype[Any]) -> Array:
    """A value that the caller gave for argument `name`, as an array of `dtype`; only reals are rounded.

    Raises:
        InvalidArgument: it is no array of real numbers, or one of them does not fit `dtype`.
    """
    refuse_masked(name, value)
    shown = reprlib.repr(value)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name} is {shown}: {error}") from None
    if given.dtype.kind in "USMmcO":
        raise InvalidArgument(f"{name} is {shown}, expected real numbers, not {given.dtype}")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            array = given.astype(dtype)
    except (TypeError, ValueError) as error:  # records
        raise InvalidArgument(f"{name} is {shown}: {error}") from None
    if dtype.kind == "f":
        fits = np.array_equal(np.isfinite(array), np.isfinite(given))
    else:
        fits = np.array_equal(array, given)
    if not fits:
        raise InvalidArgument(f"{name} is {shown}, expected numbers that {dtype} can hold")
    return array


def _is_extent(extent: object) -> bool:
    """Whether an extent is a known number above 0."""
    return isinstance(extent, int) and extent > 0
