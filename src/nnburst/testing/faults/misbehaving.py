"""Executors that do one thing wrong, for tests of programs that go on all the same."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Execution,
    Executor,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape


class Lying(Executor):
    """Supports every operation when asked, and prepares no model."""

    name = "lying"

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Refuse."""
        raise GeneralFailure("lying: no model can be prepared")


class _Answering(Execution):
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(
        self,
        deadline_ns: int | None = None,  # noqa: ARG002
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002
    ) -> Outcome:
        return self._outcome


class _RefusingPrepared(Prepared):
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:  # noqa: ARG002
        return _Answering(Outcome(ErrorStatus.GENERAL_FAILURE, message="refusing: no execution"))


class Refusing(Executor):
    """Prepares every model, and refuses each execution."""

    name = "refusing"

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Nothing to do."""
        return _RefusingPrepared()


class _MisshapenPrepared(Prepared):
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:  # noqa: ARG002
        shapes = tuple(
            OutputShape((3,) * (len(argument.dimensions) + 1), True) for argument in outputs
        )
        return _Answering(Outcome(output_shapes=shapes))


class Misshapen(Executor):
    """Computes nothing, and reports each output with a dimension more than it has."""

    name = "misshapen"

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Nothing to do."""
        return _MisshapenPrepared()
