"""Executors that do one thing wrong, for tests of programs that go on all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class _Preparing(Prepared):
    def __init__(self, outcome: Callable[[Sequence[Argument]], Outcome]) -> None:
        self._outcome = outcome

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:  # noqa: ARG002
        return _Answering(self._outcome(outputs))


class _WithoutComputing(Executor):
    """Prepares every model, and answers each execution by `outcome` of its outputs."""

    def prepare(
        self,
        model: Model,  # noqa: ARG002
        pools: Sequence[Bytes],  # noqa: ARG002
        options: PrepareOptions = DEFAULT_OPTIONS,  # noqa: ARG002
    ) -> Prepared:
        """Nothing to do."""
        return _Preparing(self.outcome)

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:
        """What an execution on such outputs ends with."""
        raise NotImplementedError


class Refusing(_WithoutComputing):
    """Prepares every model, and refuses each execution."""

    name = "refusing"

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:  # noqa: ARG002
        """GENERAL_FAILURE."""
        return Outcome(ErrorStatus.GENERAL_FAILURE, message="refusing: no execution")


class Misshapen(_WithoutComputing):
    """Computes nothing, and reports each output with a dimension more than it has."""

    name = "misshapen"

    def outcome(self, outputs: Sequence[Argument]) -> Outcome:
        """Success, with shapes that are wrong."""
        return Outcome(
            output_shapes=tuple(
                OutputShape((3,) * (len(argument.dimensions) + 1), True) for argument in outputs
            )
        )
