"""Executing on the CPU what has arguments in buffers of drivers (RT:R14)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnburst.client.execution.buffer import Buffer
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.runtime.argument import Argument, Bytes, Options, Outcome, PreparedPart


def on_plain_memory(
    part: PreparedPart, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
) -> Outcome:
    """Execute on copies of what lies in buffers: inputs are copied out before, outputs in afterwards.

    An output buffer of unknown size fails.
    """
    try:
        ins = [_copied_out(argument) for argument in inputs]
        outs = [_with_room(argument) for argument in outputs]
        outcome = part.execute(ins, outs, options)
        if outcome.code == ResultCode.NO_ERROR:
            for given, used in zip(outputs, outs, strict=True):
                if given.buffer is not None and used.bytes is not None:
                    _copy_in(given.buffer, used.bytes)
    except NnburstError as error:
        return Outcome.of(error)
    return outcome


def _copied_out(argument: Argument) -> Argument:
    if argument.buffer is None:
        return argument
    content: Bytes = np.ascontiguousarray(argument.buffer.copy_to()).reshape(-1).view(np.uint8)
    return Argument(content, argument.buffer.dimensions)


def _with_room(argument: Argument) -> Argument:
    if argument.buffer is None:
        return argument
    parameter = argument.buffer._parameter
    if not parameter.known:
        raise GeneralFailure("output: its buffer was made without knowing its size")
    room = np.zeros(parameter.dtype.itemsize * math.prod(parameter.dimensions), np.uint8)
    return Argument(room, parameter.dimensions)


def _copy_in(buffer: Buffer, content: Bytes) -> None:
    parameter = buffer._parameter
    buffer.copy_from(content.view(parameter.dtype).reshape(parameter.dimensions))
