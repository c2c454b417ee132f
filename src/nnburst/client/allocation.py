"""Allocating buffers: which prepared models will use one, and as what."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory.arguments import check_timeout
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.handshake import Session
from nnburst.control.messages.buffer import Allocate, Allocated
from nnburst.hal.buffers import BufferDesc, BufferRole
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.operand_types import DTYPES
from nnburst.hal.validation import validate_memory_desc

#: A use: a prepared model, and which of its inputs or outputs.
Use = tuple[PreparedModel, int]


def allocate_buffer(
    session: Session,
    inputs: Sequence[Use],
    outputs: Sequence[Use],
    dimensions: Sequence[int],
    timeout: float,
) -> Buffer:
    """Allocate one; see `Device.allocate_buffer`."""
    seconds = check_timeout(timeout)
    _check_uses("inputs", inputs)
    _check_uses("outputs", outputs)
    models = list({id(model): model for model, _ in (*inputs, *outputs)}.values())
    places = {id(model): index for index, model in enumerate(models)}
    read, written = (
        tuple(BufferRole(places[id(model)], index) for model, index in uses)
        for uses in (inputs, outputs)
    )
    operand = validate_memory_desc(
        dimensions,
        models,
        read,
        written,
        lambda prepared: prepared.model if prepared._prepared.session is session else None,
    )
    if operand.type not in DTYPES:
        raise GeneralFailure(
            f"buffers hold operands of core types only, not of type {operand.type}"
        )
    message = Allocate(
        BufferDesc(tuple(dimensions)),
        tuple(model._prepared.handle for model in models),
        read,
        written,
    )
    allocated, _ = session.connection.call(message, Allocated, timeout=seconds)
    return Buffer(session, allocated, operand)


def _check_uses(kind: str, uses: Sequence[Use]) -> None:
    for index, use in enumerate(uses):
        pair = isinstance(use, tuple | list) and len(use) == 2
        if not pair or not isinstance(use[0], PreparedModel) or not isinstance(use[1], int):
            raise InvalidArgument(
                f"{kind}[{index}]: {use!r}, expected a prepared model and a number"
            )
