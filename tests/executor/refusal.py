"""Checks that an operation refuses its operands with a certain reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from executor.run_operation import Given, Wanted, run
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import NnburstError


def refuses(
    kind: OperationType,
    inputs: Sequence[Given],
    outputs: Sequence[Wanted],
    message: str,
    status: ErrorStatus = ErrorStatus.GENERAL_FAILURE,
) -> None:
    """The operation fails at execution with `status` and a message that contains `message`."""
    with pytest.raises(NnburstError, match=re.escape(message)) as caught:
        run(kind, inputs, outputs)
    assert caught.value.status is status


def rejects(
    kind: OperationType, inputs: Sequence[Given], outputs: Sequence[Wanted], message: str
) -> None:
    """The model of this operation is invalid (validation:P4) with a message that contains `message`."""
    refuses(kind, inputs, outputs, message, ErrorStatus.INVALID_ARGUMENT)
