"""Calls on models."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.capi import addresses
from nnburst.runtime.devices.device import Device
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.model import Model


def model_create() -> Model:
    """See the table."""
    return Model()


def model_finish(model: Model) -> None:
    """See the table."""
    model.finish()


def model_add_operand(model: Model, kind: int) -> None:
    """See the table."""
    description = addresses.operand_type(kind)
    assert description is not None
    model.add_operand(description)


def model_set_operand_value(model: Model, index: int, buffer: int, length: int) -> None:
    """See the table."""
    model.set_operand_value(index, addresses.optional(buffer, length), length)


def model_set_operand_symm_per_channel_quant_params(model: Model, index: int, params: int) -> None:
    """See the table."""
    model.set_operand_per_channel(index, *addresses.scales(params))


def model_set_operand_value_from_memory(
    model: Model, index: int, memory: Memory, offset: int, length: int
) -> None:
    """See the table."""
    model.set_operand_value_from_memory(index, memory, offset, length)


def model_set_operand_value_from_model(model: Model, index: int, value: Model) -> None:
    """See the table."""
    model.set_operand_value_from_model(index, value)


def model_add_operation(
    model: Model, kind: int, input_count: int, inputs: int, output_count: int, outputs: int
) -> None:
    """See the table."""
    model.add_operation(
        kind,
        addresses.numbers("inputs", inputs, input_count),
        addresses.numbers("outputs", outputs, output_count),
    )


def model_identify_inputs_and_outputs(
    model: Model, input_count: int, inputs: int, output_count: int, outputs: int
) -> None:
    """See the table."""
    model.identify_inputs_and_outputs(
        addresses.numbers("inputs", inputs, input_count),
        addresses.numbers("outputs", outputs, output_count),
    )


def model_relax_computation_float32to_float16(model: Model, allow: int) -> None:
    """See the table."""
    model.relax(bool(allow))


def model_get_supported_operations_for_devices(
    model: Model, devices: Sequence[Device], _count: int, supported: int
) -> None:
    """See the table."""
    answers = model.supported_operations(devices)
    addresses.store_all("uint8_t", supported, tuple(map(int, answers)))


def model_get_extension_operand_type(model: Model, name: int, number: int, kind: int) -> None:
    """See the table."""
    code = model.extension_operand_type(addresses.string(name), number)
    addresses.store("int32_t", kind, code)


def model_get_extension_operation_type(model: Model, name: int, number: int, kind: int) -> None:
    """See the table."""
    code = model.extension_operation_type(addresses.string(name), number)
    addresses.store("int32_t", kind, code)


def model_set_operand_extension_data(model: Model, index: int, data: int, length: int) -> None:
    """See the table."""
    model.set_operand_extension_data(index, addresses.optional(data, length), length)
