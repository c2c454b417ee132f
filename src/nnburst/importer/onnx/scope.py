"""Names of a graph, a branch or a function while it is translated: which tensor each one stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from nnburst.formats.onnx.model import GraphProto, NodeProto
from nnburst.formats.onnx.tensor import TensorProto
from nnburst.formats.onnx.wire import Malformed
from nnburst.importer.onnx.tensor import Array, Tensor, constant

#: What leaves quantised numbers as they are or limits them, so that a convolution before it may quantise.
_PASSES: Final = frozenset(
    {"Relu", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Identity"}
)


class Scope:
    """Tensors by name; those of the scope around it are seen, too."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        outputs: Iterable[str],
        initializers: Mapping[str, TensorProto],
        decode: Callable[[TensorProto], Array],
        outer: Scope | None = None,
    ) -> None:
        """Of the nodes of a graph or function with these outputs."""
        self.nodes = nodes
        self.outputs = tuple(outputs)
        self._initializers = initializers
        self._decode = decode
        self._outer = outer
        self._tensors: dict[str, Tensor] = {}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)

    def find(self, name: str) -> Tensor | None:
        """The tensor that a name stands for; None if it stands for none."""
        found = self._tensors.get(name)
        if found is None and name in self._initializers:
            found = self._tensors[name] = constant(self._decode(self._initializers[name]))
        if found is None and self._outer is not None:
            return self._outer.find(name)
        return found

    def get(self, name: str) -> Tensor:
        """The tensor that a name stands for."""
        found = self.find(name)
        if found is None:
            raise Malformed(f"{name!r} is read before it is written")
        return found

    def define(self, name: str, tensor: Tensor) -> None:
        """Let a name stand for a tensor."""
        if name in self._tensors:
            raise Malformed(f"{name!r} is written twice")
        self._tensors[name] = tensor

    def holds(self, name: str) -> bool:
        """Whether the file holds the value of a name of this scope."""
        return name in self._initializers

    def needed(self) -> list[bool]:
        """Which nodes some output depends on."""
        wanted = set(self.outputs)
        found = [False] * len(self.nodes)
        for at in reversed(range(len(self.nodes))):
            node = self.nodes[at]
            if any(name and name in wanted for name in node.outputs):
                found[at] = True
                wanted.update(node.inputs)
                wanted.update(_captured(node))
        return found

    def quantizer(self, node: NodeProto) -> NodeProto | None:
        """The QuantizeLinear that alone reads a node's only output, maybe behind what it passes."""
        for _ in range(8):
            name = node.outputs[0] if node.outputs else ""
            readers = self._readers.get(name, [])
            if len(readers) != 1 or name in self.outputs or readers[0].inputs[0] != name:
                return None
            node = readers[0]
            if node.op_type == "QuantizeLinear":
                return node
            if node.op_type not in _PASSES or node.domain:
                return None
        return None

    def readers(self, name: str) -> list[NodeProto]:
        """Nodes of this scope that read a name."""
        return self._readers.get(name, [])


def _captured(node: NodeProto) -> Iterable[str]:
    """Names that subgraphs of a node read from around it, and more."""
    for attribute in node.attributes.values():
        graphs = attribute.value if isinstance(attribute.value, list) else [attribute.value]
        for graph in graphs:
            if isinstance(graph, GraphProto):
                yield from (output.name for output in graph.outputs)
                for inner in graph.nodes:
                    yield from inner.inputs
                    yield from _captured(inner)
