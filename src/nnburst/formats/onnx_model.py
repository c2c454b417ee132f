"""Reads an ONNX file into its parts: graphs, nodes, attributes, functions and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nnburst.formats.budget import Budget
from nnburst.formats.onnx_tensor import TensorProto, element_name, read_pair, read_tensor, reals
from nnburst.formats.protobuf import (
    Field,
    Malformed,
    Message,
    integers,
    once,
    real,
    signed,
    text,
)

#: Bytes charged for objects that are made of the file's parts, rounded up generously.
_NODE_COST: Final = 2048
_ENTRY_COST: Final = 512


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A tensor as a file declares it.

    Attributes:
        name: name of the tensor.
        element: name of its element type; for any other value its kind ("a sequence").
        shape: its extents, with a string or None for an open one; None if the rank is open, too.
        is_tensor: whether the value is a tensor.
    """

    name: str
    element: str = "undefined"
    shape: tuple[int | str | None, ...] | None = None
    is_tensor: bool = True


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse tensor of the file: its values and their positions."""

    values: TensorProto
    indices: TensorProto
    shape: tuple[int, ...]


@dataclass(slots=True)
class Attribute:
    """An attribute of a node.

    Attributes:
        name: name of the attribute.
        value: a float, int, bytes, tensor or graph, or a list of these; None for another kind.
        reference: the attribute of the enclosing function that gives the value, or "".
    """

    name: str = ""
    value: Any = None
    reference: str = ""


@dataclass(slots=True)
class NodeProto:
    """A node of a graph. An omitted input or output has an empty name."""

    op_type: str = ""
    domain: str = ""
    name: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    overload: str = ""


@dataclass(slots=True)
class GraphProto:
    """A graph: nodes in an order in which they can run, and values that it holds."""

    name: str = ""
    nodes: tuple[NodeProto, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    initializers: Mapping[str, TensorProto] = field(default_factory=dict)
    sparse: tuple[SparseTensor, ...] = ()


@dataclass(slots=True)
class FunctionProto:
    """A local function: the nodes that define an operator of the file."""

    name: str = ""
    domain: str = ""
    overload: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    defaults: dict[str, Attribute] = field(default_factory=dict)
    nodes: tuple[NodeProto, ...] = ()
    opsets: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class OnnxFile:
    """A whole file.

    Attributes:
        budget: counts the memory and work that reading costs.
        graph: the network.
        opsets: version of the operators, by domain; "" is ONNX's own.
        functions: local functions, by domain, name and overload.
        metadata: the file's other properties, by name.
        description: the file's own text, or its producer's name.
    """

    budget: Budget
    graph: GraphProto
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], FunctionProto]
    metadata: dict[str, str]
    description: str


def read_model(content: bytes | memoryview) -> OnnxFile:
    """Read a file.

    Args:
        content: bytes of the file, which must not change; tensors are views of them.

    Raises:
        InvalidArgument: they are not an intact ONNX file.
    """
    view = memoryview(content).cast("B")
    message = Message(view, Budget(len(view)))
    budget = message.budget
    opsets: dict[str, int] = {}
    functions: dict[tuple[str, str, str], FunctionProto] = {}
    metadata: dict[str, str] = {}
    graph, description, producer, version = None, "", "", 0
    for entry in message.fields():
        if entry.number == 1:
            version = entry.integer
        elif entry.number == 2:
            producer = text(entry, budget)
        elif entry.number == 6:
            description = text(entry, budget)
        elif entry.number == 7:
            once("the graph", graph)
            graph = _graph(message.inner(entry))
        elif entry.number == 8:
            opsets.update([_opset(message.inner(entry))])
        elif entry.number == 14:
            budget.spend(_ENTRY_COST)
            metadata.update([read_pair(message.inner(entry))])
        elif entry.number == 25:
            function = _function(message.inner(entry))
            key = function.domain, function.name, function.overload
            once(f"function {function.name!r}", functions.get(key))
            functions[key] = function
        elif entry.number == 20:
            raise Malformed("the file has a training graph, expected inference alone")
    if graph is None or not version or not opsets:
        raise Malformed("the file has no graph or no version of its operators")
    return OnnxFile(budget, graph, opsets, functions, metadata, description or producer)


def _opset(message: Message) -> tuple[str, int]:
    domain, version = "", 0
    message.budget.spend(_ENTRY_COST)
    for entry in message.fields():
        if entry.number == 1:
            domain = text(entry, message.budget)
        elif entry.number == 2:
            version = signed(entry.integer)
    return plain_domain(domain), version


def plain_domain(domain: str) -> str:
    """A domain's name, which is "" for ONNX's own domain under its long name."""
    return "" if domain == "ai.onnx" else domain


def _graph(message: Message) -> GraphProto:
    message.budget.spend(_NODE_COST)
    nodes, inputs, outputs, sparse = [], [], [], []
    initializers: dict[str, TensorProto] = {}
    name = ""
    for entry in message.fields():
        if entry.number == 1:
            nodes.append(_node(message.inner(entry)))
        elif entry.number == 2:
            name = text(entry, message.budget)
        elif entry.number == 5:
            tensor = read_tensor(message.inner(entry))
            once(f"initializer {tensor.name!r}", initializers.get(tensor.name))
            initializers[tensor.name] = tensor
        elif entry.number == 11:
            inputs.append(_value_info(message.inner(entry)))
        elif entry.number == 12:
            outputs.append(_value_info(message.inner(entry)))
        elif entry.number == 15:
            sparse.append(_sparse(message.inner(entry)))
    return GraphProto(
        name, tuple(nodes), tuple(inputs), tuple(outputs), initializers, tuple(sparse)
    )


def _node(message: Message) -> NodeProto:
    message.budget.spend(_NODE_COST)
    node = NodeProto()
    inputs, outputs = [], []
    for entry in message.fields():
        if entry.number == 1:
            inputs.append(text(entry, message.budget))
        elif entry.number == 2:
            outputs.append(text(entry, message.budget))
        elif entry.number == 3:
            node.name = text(entry, message.budget)
        elif entry.number == 4:
            node.op_type = text(entry, message.budget)
        elif entry.number == 5:
            attribute = _attribute(message.inner(entry))
            once(f"attribute {attribute.name!r}", node.attributes.get(attribute.name))
            node.attributes[attribute.name] = attribute
        elif entry.number == 7:
            node.domain = plain_domain(text(entry, message.budget))
        elif entry.number == 8:
            node.overload = text(entry, message.budget)
    node.inputs, node.outputs = tuple(inputs), tuple(outputs)
    return node


def _attribute(message: Message) -> Attribute:
    message.budget.spend(_ENTRY_COST)
    found = Attribute()
    many: list[Any] = []
    kind = 0
    for entry in message.fields():
        if entry.number == 1:
            found.name = text(entry, message.budget)
        elif entry.number == 20:
            kind = entry.integer
        elif entry.number == 21:
            found.reference = text(entry, message.budget)
        elif entry.number in _ONE:
            once(f"the value of attribute {found.name!r}", found.value)
            found.value = _ONE[entry.number](message, entry)
        elif entry.number in _MANY:
            many += _MANY[entry.number](message, entry)
    if many or kind in _LIST_KINDS:
        once(f"the value of attribute {found.name!r}", found.value)
        found.value = many
    elif found.value is None and kind in _ZEROS:
        found.value = _ZEROS[kind]  # protobuf leaves out what is zero
    return found


_LIST_KINDS: Final = frozenset({6, 7, 8, 9, 10, 12})
_ZEROS: Final[dict[int, Any]] = {1: 0.0, 2: 0, 3: b""}


def _bytes(message: Message, entry: Field) -> bytes:
    message.budget.spend(64 + len(entry.view))
    return bytes(entry.view)


def _reals(message: Message, entry: Field) -> list[float]:
    message.budget.spend(16 * len(entry.view))
    return [float(value) for value in reals(entry, "<f4").tolist()]


_ONE: Final[dict[int, Callable[[Message, Field], Any]]] = {
    2: lambda message, entry: real(entry),  # noqa: ARG005
    3: lambda message, entry: signed(entry.integer),  # noqa: ARG005
    4: _bytes,
    5: lambda message, entry: read_tensor(message.inner(entry)),
    6: lambda message, entry: _graph(message.inner(entry)),
    22: lambda message, entry: _sparse(message.inner(entry)),
}
_MANY: Final[dict[int, Callable[[Message, Field], list[Any]]]] = {
    7: _reals,
    8: lambda message, entry: integers(entry, message.budget),
    9: lambda message, entry: [_bytes(message, entry)],
    10: lambda message, entry: [read_tensor(message.inner(entry))],
    11: lambda message, entry: [_graph(message.inner(entry))],
    23: lambda message, entry: [_sparse(message.inner(entry))],
}


def _sparse(message: Message) -> SparseTensor:
    found: dict[int, TensorProto] = {}
    dims: list[int] = []
    for entry in message.fields():
        if entry.number in (1, 2):
            once("a part of a sparse tensor", found.get(entry.number))
            found[entry.number] = read_tensor(message.inner(entry))
        elif entry.number == 3:
            dims += integers(entry, message.budget)
    return SparseTensor(found.get(1, TensorProto()), found.get(2, TensorProto()), tuple(dims))


def _function(message: Message) -> FunctionProto:
    message.budget.spend(_NODE_COST)
    found = FunctionProto()
    inputs, outputs, nodes = [], [], []
    for entry in message.fields():
        if entry.number == 1:
            found.name = text(entry, message.budget)
        elif entry.number == 4:
            inputs.append(text(entry, message.budget))
        elif entry.number == 5:
            outputs.append(text(entry, message.budget))
        elif entry.number == 7:
            nodes.append(_node(message.inner(entry)))
        elif entry.number == 9:
            found.opsets.update([_opset(message.inner(entry))])
        elif entry.number == 10:
            found.domain = plain_domain(text(entry, message.budget))
        elif entry.number == 11:
            attribute = _attribute(message.inner(entry))
            once(f"attribute {attribute.name!r}", found.defaults.get(attribute.name))
            found.defaults[attribute.name] = attribute
        elif entry.number == 13:
            found.overload = text(entry, message.budget)
    found.inputs, found.outputs, found.nodes = tuple(inputs), tuple(outputs), tuple(nodes)
    return found


def _value_info(message: Message) -> ValueInfo:
    message.budget.spend(_ENTRY_COST)
    name, kind = "", ValueInfo("")
    for entry in message.fields():
        if entry.number == 1:
            name = text(entry, message.budget)
        elif entry.number == 2:
            kind = _type(message.inner(entry))
    return ValueInfo(name, kind.element, kind.shape, kind.is_tensor)


_KINDS: Final = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "optional", 7: "opaque"}


def _type(message: Message) -> ValueInfo:
    """Parse a TypeProto."""
    found = ValueInfo("")
    for entry in message.fields():
        if entry.number == 1:
            found = _tensor_type(message.inner(entry))
        elif entry.number in _KINDS:
            found = ValueInfo("", _KINDS[entry.number], is_tensor=False)
    return found


def _tensor_type(message: Message) -> ValueInfo:
    element, shape = 0, None
    for entry in message.fields():
        if entry.number == 1:
            element = entry.integer
        elif entry.number == 2:
            inner = message.inner(entry)
            shape = tuple(_extent(inner.inner(each)) for each in inner.fields() if each.number == 1)
    return ValueInfo("", element_name(element), shape)


def _extent(message: Message) -> int | str | None:
    message.budget.spend(64)
    for entry in message.fields():
        if entry.number == 1:
            return signed(entry.integer)
        if entry.number == 2:
            return text(entry, message.budget)
    return None


def tensors_of(file: OnnxFile) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor of a file (initializers, attributes, functions), each with a text of where it is."""
    yield from _of_graph(file.graph, "the graph")
    for function in file.functions.values():
        for attribute in function.defaults.values():
            yield from _of_value(attribute.value, f"function {function.name!r}")
        for node in function.nodes:
            yield from _of_node(node, f"function {function.name!r}")


def nodes_of(file: OnnxFile) -> Iterator[NodeProto]:
    """Every node of a file, those of subgraphs and functions included."""
    for function in file.functions.values():
        for attribute in function.defaults.values():
            yield from _nodes_in(attribute.value)
        for node in function.nodes:
            yield from _nodes_from(node)
    yield from _nodes_in(file.graph)


def _nodes_from(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for attribute in node.attributes.values():
        yield from _nodes_in(attribute.value)


def _nodes_in(value: Any) -> Iterator[NodeProto]:  # noqa: ANN401 - an attribute's
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, GraphProto):
            for node in each.nodes:
                yield from _nodes_from(node)


def _of_graph(graph: GraphProto, where: str) -> Iterator[tuple[str, TensorProto]]:
    for tensor in graph.initializers.values():
        yield where, tensor
    for sparse in graph.sparse:
        yield from _of_value(sparse, where)
    for node in graph.nodes:
        yield from _of_node(node, where)


def _of_node(node: NodeProto, where: str) -> Iterator[tuple[str, TensorProto]]:
    for attribute in node.attributes.values():
        yield from _of_value(attribute.value, f"{where}, {node.op_type} {node.name!r}")


def _of_value(value: Any, where: str) -> Iterator[tuple[str, TensorProto]]:  # noqa: ANN401
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, TensorProto):
            yield where, each
        elif isinstance(each, SparseTensor):
            yield where, each.values
            yield where, each.indices
        elif isinstance(each, GraphProto):
            yield from _of_graph(each, where)
