"""Builds a model call by call, and converts it to the form that drivers take."""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.client.memory import Memory as Pool
from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import BadState, InvalidArgument, UnexpectedNull
from nnburst.hal.extensions import extension_code, number_of, prefix_of
from nnburst.hal.graph_dump import dump_model
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import (
    DataLocation,
    ExtensionNameAndPrefix,
    ExtensionParams,
    MemoryPool,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
)
from nnburst.hal.model import Model as HalModel
from nnburst.hal.validation.model import ControlFlow
from nnburst.hal.validation.operation import (
    CONTROL_FLOW,
    Surroundings,
    validate_extra_params,
    validate_operation,
)
from nnburst.hal.validation.values import Broken
from nnburst.runtime.devices.device import CandidateDevice, Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.extensions import TYPES, check_permission
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.operands import (
    MAX_IMMEDIATELY_COPIED,
    BuiltModel,
    MemoryRange,
    ModelOperand,
    OperandDescription,
    Readable,
    byte_view,
    is_fully_specified,
)
from nnburst.runtime.planning.finished_model import FinishedModel, finish
from nnburst.runtime.planning.placement import supported_operations
from nnburst.runtime.planning.slices import SliceableModel, hal_model
from nnburst.runtime.runtime_object import RuntimeObject

_L = OperandLifeTime
#: Constants start at multiples of this, so that their arrays are aligned.
_ALIGNMENT: Final = 16


class ModelBuild:
    """Collects the memories and models that the operands of one model refer to.

    Attributes:
        memories: memories of the pools, in order.
        relaxed: for the main and each referenced model, whether float32 may be computed as float16.
    """

    def __init__(self) -> None:
        self._values = bytearray()
        self.memories: list[Memory] = []
        self.relaxed: list[bool] = []
        self._referenced: list[Subgraph] = []

    def build(
        self,
        operands: Sequence[ModelOperand],
        operations: Sequence[Operation],
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        relaxed: bool,
    ) -> HalModel:
        """Build the HAL's model, with all operands, and operations in the given order."""
        self.relaxed.append(relaxed)
        uses = Counter(index for operation in operations for index in operation.inputs)
        self._copy_large_values(operands)
        described = tuple(
            replace(
                operand.description,
                lifetime=operand.lifetime,
                location=self._location(operand),
                extra_params=operand.extra_params,
                number_of_consumers=uses[index],
            )
            for index, operand in enumerate(operands)
        )
        main = Subgraph(described, tuple(operations), tuple(inputs), tuple(outputs))
        codes = [
            code
            for graph in (main, *self._referenced)
            for code in (*(o.type for o in graph.operands), *(o.type for o in graph.operations))
        ]
        return HalModel(
            main=main,
            referenced=tuple(self._referenced),
            operand_values=bytes(self._values),
            pools=tuple(MemoryPool(memory.size, n) for n, memory in enumerate(self.memories)),
            relax_computation_float32_to_float16=relaxed,
            extension_name_to_prefix=TYPES.used_by(codes),
        )

    def _copy_large_values(self, operands: Sequence[ModelOperand]) -> None:
        """Copy values that were kept by reference into one new memory (RT:M10)."""
        large = [(o, o.value) for o in operands if isinstance(o.value, memoryview)]
        if not large:
            return
        memory = Memory.allocate(sum(_aligned(value.nbytes) for _, value in large))
        offset = 0
        for operand, value in large:
            memory.bytes[offset : offset + value.nbytes] = np.frombuffer(value, np.uint8)
            operand.give(_L.CONSTANT_REFERENCE, MemoryRange(memory, offset, value.nbytes))
            offset += _aligned(value.nbytes)

    def _location(self, operand: ModelOperand) -> DataLocation:
        value = operand.value
        if isinstance(value, MemoryRange):
            return DataLocation(self._pool(value.memory), value.offset, value.length)
        if isinstance(value, bytes):
            self._values.extend(b"\0" * (-len(self._values) % _ALIGNMENT))
            self._values.extend(value)
            return DataLocation(offset=len(self._values) - len(value), length=len(value))
        if isinstance(value, BuiltModel):
            return DataLocation(offset=self._flatten(value))
        return DataLocation()

    def _pool(self, memory: Memory) -> int:
        for index, known in enumerate(self.memories):
            if known is memory:
                return index
        self.memories.append(memory)
        return len(self.memories) - 1

    def _flatten(self, value: BuiltModel) -> int:
        """Add a referenced model and its own referenced models; each mention adds a copy."""
        self._values.extend(b"\0" * (-len(self._values) % _ALIGNMENT))
        values, first = len(self._values), len(self._referenced)
        model = value.model
        self._values.extend(model.operand_values)
        pools = [self._pool(memory) for memory in value.memories]

        def moved(operand: Operand) -> Operand:
            at = operand.location
            if operand.lifetime == _L.CONSTANT_COPY:
                at = replace(at, offset=at.offset + values)
            elif operand.lifetime == _L.CONSTANT_REFERENCE:
                at = replace(at, pool_index=pools[at.pool_index])
            elif operand.lifetime == _L.SUBGRAPH:
                at = replace(at, offset=at.offset + first + 1)
            return replace(operand, location=at)

        for graph in (model.main, *model.referenced):
            self._referenced.append(replace(graph, operands=tuple(map(moved, graph.operands))))
        self.relaxed += value.relaxed
        return first


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def with_process_prefixes(model: HalModel) -> HalModel:
    """The model with the prefixes that its extensions have in this process.

    Raises:
        InvalidArgument: no device has one of the extensions.
    """
    entries = model.extension_name_to_prefix
    if not entries:
        return model
    prefixes = {entry.prefix: TYPES.prefix(entry.name) for entry in entries}

    def code(code: int) -> int:
        known = is_extension(code) and prefixes.get(prefix_of(code))
        return extension_code(known, number_of(code)) if known else code

    def translated(graph: Subgraph) -> Subgraph:
        return replace(
            graph,
            operands=tuple(replace(o, type=code(o.type)) for o in graph.operands),
            operations=tuple(replace(o, type=code(o.type)) for o in graph.operations),
        )

    return replace(
        model,
        main=translated(model.main),
        referenced=tuple(map(translated, model.referenced)),
        extension_name_to_prefix=tuple(
            ExtensionNameAndPrefix(entry.name, prefixes[entry.prefix]) for entry in entries
        ),
    )


def pools_of(memories: Sequence[Memory]) -> list[Pool]:
    """Pools with the present contents of memories, for constants."""
    return [memory._constants() for memory in memories]


# -- model -----------------------------------------------------------------------------------------


logger = logging.getLogger("nnburst.runtime")

_OEM: Final = (OperandType.OEM, OperandType.TENSOR_OEM_BYTE)


class Model(RuntimeObject):
    """A model that is built call by call, then finished (NNAPI: ANeuralNetworksModel).

    Not thread-safe while it is built; a finished model may be used by any thread. It keeps the memories and
    models that it refers to alive.

    NNAPI: RT:M1 to M13, ModelBuilder.cpp.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operands: list[ModelOperand] = []
        self._operations: list[Operation] = []
        self._inputs: tuple[int, ...] = ()
        self._outputs: tuple[int, ...] = ()
        self._relaxed = False
        self._completed = False
        self._finished: FinishedModel | None = None
        self._built: BuiltModel | None = None

    @classmethod
    def of(cls, model: HalModel, memories: Sequence[Memory] = ()) -> Model:
        """Make a finished model from a model of the HAL.

        Args:
            model: the model; operations in any order, prefixes of extensions as the model maps them.
            memories: a memory for each pool, in order; at least as large as the model declares.

        Raises:
            InvalidArgument: the model is not valid, or the memories do not fit its pools; BAD_DATA.
        """
        if len(memories) != len(model.pools):
            raise InvalidArgument(
                f"memories: {len(memories)} given, the model has {len(model.pools)} pools"
            )
        for index, (memory, pool) in enumerate(zip(memories, model.pools, strict=True)):
            if memory.size < pool.size:
                raise InvalidArgument(
                    f"memories[{index}]: {memory.size} bytes, the model declares {pool.size}"
                )
        if model.extension_name_to_prefix:
            check_permission("model")
        built = with_process_prefixes(model)
        made = cls()
        made._completed = True
        made._operands = [ModelOperand(operand) for operand in built.main.operands]
        made._operations = list(built.main.operations)
        made._inputs, made._outputs = built.main.input_indexes, built.main.output_indexes
        made._finished = finish(built)
        flags = (built.relax_computation_float32_to_float16,) * (1 + len(built.referenced))
        made._built = BuiltModel(built, flags, tuple(memories))
        dump_model(built, "finished model")
        return made

    # -- building ------------------------------------------------------------------------------------------

    def add_operand(self, description: OperandDescription) -> int:
        """Add an operand and return its index.

        Raises:
            UnexpectedNull: `description` is None.
            BadState: the model is finished.
            InvalidArgument: RT:M3: type, dimensions or quantisation is not valid; BAD_DATA.
        """
        if description is None:
            raise UnexpectedNull("add_operand: description is None")
        self._check_building("add_operand")
        operand = description.checked(f"operand {len(self._operands)}", TYPES)
        if is_extension(operand.type):
            check_permission("add_operand")
        if operand.type in _OEM:
            logger.warning("operand %d has an OEM type: few devices take it", len(self._operands))
        self._operands.append(ModelOperand(operand))
        return len(self._operands) - 1

    def set_operand_value(
        self, index: int, value: Readable | None, length: int | None = None
    ) -> None:
        """Give an operand a constant value; None makes it an omitted optional operand.

        Args:
            index: index of the operand.
            value: anything with a contiguous buffer. More than 128 bytes are kept by reference until `finish`
                and must not change before.
            length: number of bytes from a caller in C; only checked if `value` is None.

        Raises:
            UnexpectedNull: `value` is None although `length` is not 0.
            BadState: the model is finished.
            InvalidArgument: RT:M4: the index is not valid, or the size does not fit the operand; BAD_DATA.
        """
        if value is None and length:
            raise UnexpectedNull(f"set_operand_value: value is None, length {length}")
        self._check_building("set_operand_value")
        operand = self._operand("set_operand_value", index)
        if value is None:
            operand.give(_L.NO_VALUE, None)
            return
        view = byte_view("value", value)
        self._check_size("set_operand_value", index, view.nbytes)
        lifetime = _L.CONSTANT_COPY
        operand.give(lifetime, bytes(view) if view.nbytes <= MAX_IMMEDIATELY_COPIED else view)

    def set_operand_value_from_memory(
        self, index: int, memory: Memory, offset: int, length: int
    ) -> None:
        """Give an operand a constant value that lies in a memory object, which must not change after that.

        Args:
            index: index of the operand.
            memory: the memory, which the model keeps alive.
            offset: offset of the value's first byte.
            length: number of bytes of the value.

        Raises:
            UnexpectedNull: `memory` is None.
            BadState: the model is finished.
            InvalidArgument: RT:M5: the index, the length, or the range is not valid; BAD_DATA.
        """
        if memory is None:
            raise UnexpectedNull("set_operand_value_from_memory: memory is None")
        self._check_building("set_operand_value_from_memory")
        operand = self._operand("set_operand_value_from_memory", index)
        self._check_size("set_operand_value_from_memory", index, length)
        memory._check_constant(offset, length)
        operand.give(_L.CONSTANT_REFERENCE, MemoryRange(memory, offset, length))

    def set_operand_value_from_model(self, index: int, value: Model) -> None:
        """Make an operand refer to a finished model, for IF and WHILE.

        Args:
            index: index of the operand, whose type is SUBGRAPH.
            value: the finished model, which is kept alive.

        Raises:
            UnexpectedNull: `value` is None.
            BadState: this model is finished, or `value` is not.
            InvalidArgument: there is no such operand; BAD_DATA.
        """
        if value is None:
            raise UnexpectedNull("set_operand_value_from_model: value is None")
        self._check_building("set_operand_value_from_model")
        built = value._built_model
        operand = self._operand("set_operand_value_from_model", index)
        operand.give(_L.SUBGRAPH, built)

    def set_operand_per_channel(
        self, index: int, scales: Sequence[float] | None, channel_dim: int
    ) -> None:
        """Set the scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand.

        Args:
            index: index of the operand.
            scales: quantisation steps, one for each index of `channel_dim`.
            channel_dim: dimension that the scales belong to.

        Raises:
            BadState: the model is finished.
            InvalidArgument: RT:M7: the operand's type, the dimension, or the number or values of the scales
                are not valid; BAD_DATA.
        """
        self._check_building("set_operand_per_channel")
        operand = self._operand("set_operand_per_channel", index)
        if scales is None or not len(scales):
            raise InvalidArgument(
                "set_operand_per_channel: scales: empty, expected one for each extent"
            )
        params = SymmPerChannelQuantParams(tuple(float(s) for s in scales), int(channel_dim))
        if operand.description.type != OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            raise InvalidArgument(
                f"set_operand_per_channel: operand {index} is of type {operand.description.type},"
                " expected TENSOR_QUANT8_SYMM_PER_CHANNEL"
            )
        _checked(
            f"operand {index}",
            lambda: validate_extra_params(replace(operand.description, extra_params=params)),
        )
        operand.extra_params = params

    def set_operand_extension_data(
        self, index: int, data: Readable | None, length: int | None = None
    ) -> None:
        """Attach bytes to an operand of an extension's type; None clears them (RT:X7).

        Args:
            index: index of the operand.
            data: anything with a contiguous buffer; copied.
            length: number of bytes from a caller in C; only checked if `data` is None.

        Raises:
            UnexpectedNull: `data` is None although `length` is not 0.
            BadState: the model is finished.
            InvalidArgument: the operand is of a core type, or `data` has no bytes; BAD_DATA.
        """
        if data is None and length:
            raise UnexpectedNull(f"set_operand_extension_data: data is None, length {length}")
        self._check_building("set_operand_extension_data")
        operand = self._operand("set_operand_extension_data", index)
        if not is_extension(operand.description.type):
            raise InvalidArgument(
                f"set_operand_extension_data: operand {index} is of a core type, expected an extension's"
            )
        if data is None:
            operand.extra_params = None
            return
        view = byte_view("data", data)
        if not view.nbytes:
            raise InvalidArgument("set_operand_extension_data: data has 0 bytes")
        operand.extra_params = ExtensionParams(bytes(view))

    def add_operation(
        self, kind: int, inputs: Sequence[int] | None, outputs: Sequence[int] | None
    ) -> None:
        """Add an operation; the order of adding does not matter.

        Args:
            kind: an `OperationType`, or the code of an extension's operation.
            inputs: indexes of the operands that it reads.
            outputs: indexes of the operands that it writes.

        Raises:
            UnexpectedNull: a list is None.
            BadState: the model is finished.
            InvalidArgument: RT:M8: the code, the operands, or their types are not valid; BAD_DATA.
        """
        if inputs is None or outputs is None:
            raise UnexpectedNull("add_operation: inputs or outputs are None")
        self._check_building("add_operation")
        number = len(self._operations)
        lists = [
            self._indexes(name, some) for name, some in (("inputs", inputs), ("outputs", outputs))
        ]
        operation = Operation(operator.index(kind), *lists)
        if is_extension(operation.type) and TYPES.name(operation.type) is None:
            raise InvalidArgument(
                f"add_operation: kind: no extension has the prefix of {operation.type:#x}"
            )
        if is_extension(operation.type):
            check_permission("add_operation")
        _checked(f"operation {number}", lambda: self._validate_operation(operation))
        self._operations.append(operation)

    def identify_inputs_and_outputs(
        self, inputs: Sequence[int] | None, outputs: Sequence[int] | None
    ) -> None:
        """Set the model's inputs and outputs, in order.

        Args:
            inputs: indexes of operands.
            outputs: indexes of operands.

        Raises:
            UnexpectedNull: a list is None.
            BadState: the model is finished.
            InvalidArgument: RT:M9: an operand is unknown, has a value, or is listed twice; BAD_DATA.
        """
        if inputs is None or outputs is None:
            raise UnexpectedNull("identify_inputs_and_outputs: inputs or outputs are None")
        self._check_building("identify_inputs_and_outputs")
        lists = [
            self._indexes(name, some) for name, some in (("inputs", inputs), ("outputs", outputs))
        ]
        listed: set[int] = set()
        for index in (*lists[0], *lists[1]):
            if index in listed:
                raise InvalidArgument(
                    f"identify_inputs_and_outputs: operand {index} is listed twice"
                )
            if self._operands[index].lifetime != _L.TEMPORARY_VARIABLE:
                raise InvalidArgument(
                    f"identify_inputs_and_outputs: operand {index} is a"
                    f" {self._operands[index].lifetime.name} already"
                )
            listed.add(index)
        self._inputs, self._outputs = lists
        for indexes, lifetime in zip(lists, (_L.SUBGRAPH_INPUT, _L.SUBGRAPH_OUTPUT), strict=True):
            for index in indexes:
                self._operands[index].lifetime = lifetime

    def relax(self, allow: bool = True) -> None:
        """Let float32 be computed as float16 (NNAPI: relaxComputationFloat32toFloat16).

        Raises:
            BadState: the model is finished.
        """
        self._check_building("relax")
        self._relaxed = bool(allow)

    def finish(self) -> None:
        """Check the model as a whole; after that it cannot change.

        Raises:
            BadState: `finish` was called before, even without success.
            InvalidArgument: RT:M10: the model is not valid, and stays so; BAD_DATA.
        """
        self._check_building("finish")
        self._completed = True
        builder = ModelBuild()
        built = builder.build(
            self._operands, self._operations, self._inputs, self._outputs, relaxed=self._relaxed
        )
        self._finished = finish(built, relaxed=builder.relaxed)
        self._built = BuiltModel(built, tuple(builder.relaxed), tuple(builder.memories))
        dump_model(built, "finished model")

    def supported_operations(
        self, devices: Sequence[Device | None], manager: Manager | None = None
    ) -> list[bool]:
        """For each operation, in the order of adding, whether at least one of `devices` can run it.

        Args:
            devices: some of the manager's devices.
            manager: the manager; that of this process unless given.

        Raises:
            UnexpectedNull: the list or an entry is None.
            InvalidArgument: RT:M13: the list is empty, or has a device twice or one of another manager;
                BAD_DATA.
            BadState: the model is not finished, or not valid.
        """
        known = Manager.of_process() if manager is None else manager
        listed = known._check_devices(devices)
        self._check_open()
        model, used = hal_model(self._finished_model)
        pools = pools_of(self._memories)
        sliceable = SliceableModel(model)
        answers = [False] * len(self._operations)
        for device in listed:
            asked = CandidateDevice(device, pools, refuses_half=known._settings.refuses_half)
            found = supported_operations(asked, sliceable, used)
            for position, supported in zip(self._finished_model.run_orders[0], found, strict=True):
                answers[position] |= supported
        return answers

    # -- for the rest of the framework -----------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether `finish` has succeeded."""
        return self._finished is not None

    @property
    def _finished_model(self) -> FinishedModel:
        """The model in the form for planning.

        Raises:
            BadState: the model is not finished, or not valid.
        """
        if self._finished is None:
            raise BadState("model: it is not finished, or invalid")
        return self._finished

    @property
    def _built_model(self) -> BuiltModel:
        """The model with the client's numbers and order, for models that refer to it.

        Raises:
            BadState: the model is not finished, or not valid.
        """
        self._finished_model  # noqa: B018 - checks the state
        assert self._built is not None
        return self._built

    @property
    def _memories(self) -> tuple[Memory, ...]:
        """The memories that constants lie in, in the order of the pools."""
        return () if self._built is None else self._built.memories

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands of the inputs, in order."""
        return tuple(self._operands[index].as_operand() for index in self._inputs)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The operands of the outputs, in order."""
        return tuple(self._operands[index].as_operand() for index in self._outputs)

    @property
    def operand_count(self) -> int:
        """The number of operands that were added."""
        return len(self._operands)

    @staticmethod
    def extension_operand_type(extension: str, number: int) -> int:
        """Code of operand type `number` of an extension in this process (RT:X2).

        Raises:
            InvalidArgument: no device has the extension.
        """
        return TYPES.code(extension, number)

    @staticmethod
    def extension_operation_type(extension: str, number: int) -> int:
        """Code of operation `number` of an extension in this process (RT:X2).

        Raises:
            InvalidArgument: no device has the extension.
        """
        return TYPES.code(extension, number)

    def _check_building(self, call: str) -> None:
        self._check_open()
        if self._completed:
            raise BadState(f"{call}: the model is finished and cannot change")

    def _summary(self) -> str:
        state = "finished" if self.is_finished else "not finished"
        return f"{len(self._operands)} operands, {len(self._operations)} operations, {state}"

    def _operand(self, call: str, index: int) -> ModelOperand:
        if not 0 <= operator.index(index) < len(self._operands):
            raise InvalidArgument(f"{call}: index: {index} of {len(self._operands)} operands")
        return self._operands[index]

    def _indexes(self, name: str, indexes: Sequence[int]) -> tuple[int, ...]:
        checked = tuple(map(operator.index, indexes))
        for position, index in enumerate(checked):
            if not 0 <= index < len(self._operands):
                raise InvalidArgument(
                    f"{name}[{position}]: {index} of {len(self._operands)} operands"
                )
        return checked

    def _check_size(self, call: str, index: int, length: int) -> None:
        """Check that a constant is fully specified and has the size of its type (RT:M4)."""
        operand = self._operands[index].description
        if not length or not 0 < length <= UINT32_MAX:
            raise InvalidArgument(f"{call}: length: {length}, expected 1 to {UINT32_MAX}")
        if operand.type == OperandType.OEM:
            return
        if not is_fully_specified(operand, TYPES):
            raise InvalidArgument(
                f"{call}: operand {index} has dimensions {list(operand.dimensions)}, which a constant"
                " must have in full"
            )
        needed = TYPES.size_bytes(operand)
        if length != needed:
            raise InvalidArgument(f"{call}: length: {length} for operand {index} of {needed} bytes")

    def _validate_operation(self, operation: Operation) -> None:
        """Check all rules of an operation that do not need the whole graph (RT:M8)."""
        names = dict.fromkeys((*operation.inputs, *operation.outputs))
        number = {index: position for position, index in enumerate(names)}
        graphs: list[Subgraph] = []
        operands = []
        for index in names:
            known = self._operands[index]
            location = DataLocation()
            if isinstance(known.value, BuiltModel):
                location = DataLocation(offset=len(graphs))
                graphs.append(known.value.model.main)
            operands.append(
                replace(
                    known.description,
                    lifetime=known.lifetime,
                    location=location,
                    extra_params=known.extra_params,
                )
            )
        local = Operation(
            operation.type,
            tuple(number[i] for i in operation.inputs),
            tuple(number[i] for i in operation.outputs),
        )
        graph = Subgraph(tuple(operands), (local,), (), ())
        around = Surroundings(0, (), len(graphs), TYPES.prefixes, FeatureLevel.AIDL_V4)
        validate_operation(local, graph, SIGNATURES, around)
        if operation.type in CONTROL_FLOW:
            subgraphs = [
                operands[i] for i in local.inputs if operands[i].type == OperandType.SUBGRAPH
            ]
            if any(operand.lifetime != _L.SUBGRAPH for operand in subgraphs):
                raise Broken("O15", f"{OperationType(operation.type).name}: a model was not set")
            ControlFlow(HalModel(graph, tuple(graphs)), ()).validate(local, graph)


def _checked(where: str, check: object) -> None:
    try:
        check()  # type: ignore[operator]
    except Broken as broken:
        raise broken.at(where) from None
