"""A file as a model: the main subgraph, then those that it refers to, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import MemoryPool, Model, Subgraph
from nnburst.importer.constants import ConstantPool
from nnburst.importer.extensions import Extensions
from nnburst.importer.imported_model import ImportedModel, SignatureDef, State
from nnburst.importer.refused import Refused
from nnburst.importer.tflite import operators
from nnburst.importer.tflite.graph import Graph, indexes
from nnburst.importer.tflite.operator import Operator, Translate, translation
from nnburst.importer.tflite.state import Variables
from nnburst.importer.tflite.tflite_file import OPERATOR_COST, TfliteFile, text

assert operators.__all__  # importing them has filled the table

_MAIN = 0


class Translation:
    """One translation of one file. Used once."""

    def __init__(self, file: TfliteFile, extensions: Extensions, *, exact: bool) -> None:
        """Of a file whose header was checked; see `nnburst.load` for the rest."""
        self._file = file
        self._extensions = extensions
        self._exact = exact
        self._is_dynamic_range = False
        self._constants = ConstantPool(file.bytes)
        self._variables = Variables(file)
        self._references: list[int] = []  # subgraphs of the file, in the order they are referenced
        self._numbers: dict[int, int] = {}

    def run(self) -> ImportedModel:
        """The imported model.

        Raises:
            InvalidArgument: the file is not intact, or NNAPI cannot express what it holds.
        """
        graph = Graph(self._file, _MAIN, self._constants)
        self._translate(graph, _MAIN, self._variables)
        inputs, outputs = _interface(graph)
        variables = self._variables.read_ones()
        current = [variable.current for variable in variables if variable.current is not None]
        main = graph.finish([*map(graph.value, outputs), *current])
        referenced = self._referenced()
        states = tuple(
            State(v.name, len(inputs) + i, len(outputs) + i, v.first(self._constants))
            for i, v in enumerate(variables)
        )
        pools = self._constants.fill()
        names = tuple(state.name for state in states)
        return ImportedModel(
            model=Model(
                main=main,
                referenced=referenced,
                operand_values=bytes(self._constants.values),
                pools=tuple(MemoryPool(pool.nbytes, i) for i, pool in enumerate(pools)),
                relax_computation_float32_to_float16=self._is_dynamic_range and not self._exact,
                extension_name_to_prefix=self._extensions.used,
            ),
            pools=pools,
            input_names=(*map(graph.name, inputs), *names),
            output_names=(*map(graph.name, outputs), *names),
            states=states,
            signatures=_positions(self._file.signatures(_MAIN), inputs, outputs),
            metadata=self._file.metadata(),
            description=text(self._file.model.Description()),
            operators=tuple(graph.origins),
        )

    def _reference(self, index: int) -> int:
        """Number of subgraph `index` of the file among the referenced ones."""
        if index not in self._numbers:
            self._file.subgraph(index)  # is there
            self._numbers[index] = len(self._references)
            self._references.append(index)
        return self._numbers[index]

    def _referenced(self) -> tuple[Subgraph, ...]:
        """The referenced subgraphs; translating one may add to the list."""
        finished: list[Subgraph] = []
        while len(finished) < len(self._references):
            index = self._references[len(finished)]
            graph = Graph(self._file, index, self._constants)
            self._translate(graph, index, None)
            _, outputs = _interface(graph)
            finished.append(graph.finish([graph.value(tensor) for tensor in outputs]))
        return tuple(finished)

    def _translate(self, graph: Graph, index: int, variables: Variables | None) -> None:
        """Translate the operators of a subgraph in order."""
        where = "" if index == _MAIN else f" of subgraph {index}"
        for at in range(graph.subgraph.OperatorsLength()):
            self._file.bytes.spend(OPERATOR_COST)
            raw = graph.subgraph.Operators(at)
            name = self._file.operator_name(raw)
            try:
                operator = Operator(name, at, raw, graph, self._reference, variables)
                self._translation(name, raw)(operator)
            except InvalidArgument as error:
                how = " cannot be imported" if isinstance(error, Refused) else ""
                raise InvalidArgument(f"operator {at}{where} ({name}){how}: {error}") from None
        self._is_dynamic_range |= graph.is_dynamic_range

    def _translation(self, name: str, raw: Any) -> Translate:  # noqa: ANN401 - generated code
        """What translates an operator: one of the table, or that of an extension."""
        custom = self._file.custom_code(raw)
        claimed = None if custom is None else self._extensions.find(custom)
        if claimed is None:
            return translation(name)
        extension, becomes = claimed
        if becomes.lowering is not None:
            return becomes.lowering
        operation = self._extensions.code(extension, becomes.operation)
        options = (
            None if becomes.options is None else self._extensions.code(extension, becomes.options)
        )
        return lambda operator: operator.emit_custom(operation, options)


def _interface(graph: Graph) -> tuple[list[int], list[int]]:
    """Tensors that are inputs and outputs of a subgraph."""
    inputs = indexes(graph.file, graph.subgraph, "Inputs")
    outputs = indexes(graph.file, graph.subgraph, "Outputs")
    if not outputs:
        raise MalformedTflite("a subgraph has no outputs")
    return inputs, outputs


def _positions(
    signatures: Sequence[SignatureDef], inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[SignatureDef, ...]:
    """Signatures whose names stand for positions instead of tensors of the file."""
    into = {tensor: place for place, tensor in enumerate(inputs)}
    out_of = {tensor: place for place, tensor in enumerate(outputs)}
    return tuple(
        SignatureDef(s.key, _placed(s.inputs, into), _placed(s.outputs, out_of)) for s in signatures
    )


def _placed(tensors: Mapping[str, int], places: Mapping[int, int]) -> dict[str, int]:
    for name, tensor in tensors.items():
        if tensor not in places:
            raise MalformedTflite(
                f"a signature's {name!r} is tensor {tensor}, not an input or output"
            )
    return {name: places[tensor] for name, tensor in tensors.items()}
