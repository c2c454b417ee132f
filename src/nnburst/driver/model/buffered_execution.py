"""Executions whose requests name buffers: states are checked before, and updated after.

Every way to execute binds such a request to a `BufferedExecution` and runs it (`run_in_time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nnburst.driver.model.buffers import DeviceBuffer
from nnburst.driver.model.raised import outcome_of
from nnburst.executor.base import Argument, Execution, Outcome, Prepared
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import OutputShape

Shape = tuple[int, ...]


class BufferArgument(NamedTuple):
    """An argument that is a whole buffer, and its dimensions by model and request."""

    buffer: DeviceBuffer
    dimensions: Shape


class BufferedExecution(Execution):
    """A request bound to memory and buffers. One thread runs it at a time, as often as it likes.

    Buffers may change between runs, so each run binds their memory anew.
    """

    def __init__(
        self,
        model: object,
        prepared: Prepared,
        inputs: Sequence[Argument | BufferArgument],
        outputs: Sequence[Argument | BufferArgument],
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> None:
        """Check what does not change.

        Args:
            model: in whose roles the buffers are used.
            prepared: executes.
            inputs: as validated.
            outputs: as validated.
            attributes: for the executor.

        Raises:
            InvalidArgument: device:§6: a buffer is used as what it was not allocated for, or twice.
        """
        self._prepared = prepared
        self._inputs = inputs
        self._outputs = outputs
        self._attributes = attributes
        for kind, arguments in (("input", inputs), ("output", outputs)):
            for index, argument in enumerate(arguments):
                if isinstance(argument, BufferArgument):
                    argument.buffer.check_role(model, kind, index)
        used = [id(a.buffer) for a in inputs if isinstance(a, BufferArgument)]
        for output in self._written():
            if id(output.buffer) in used:
                raise InvalidArgument(
                    f"device:E6: buffer {output.buffer.token} is an output and also something else"
                )
            used.append(id(output.buffer))

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`.

        An uninitialised input, and an output for which a buffer is too small, are GENERAL_FAILURE
        (device:§5.1, §6). Buffers that were to be written are initialised only if it succeeds.
        """
        try:
            outcome = self._run(deadline_ns, loop_timeout_ns)
        except BaseException as error:
            outcome = outcome_of(error)
        if outcome.status != ErrorStatus.NONE:
            self.cancel()
        return outcome

    def cancel(self) -> None:
        """Note that it has failed, if it does not even run."""
        invalidate(output.buffer for output in self._written())

    def _run(self, deadline_ns: int | None, loop_timeout_ns: int) -> Outcome:
        inputs = [
            Argument(a.buffer.content(a.dimensions), a.dimensions)
            if isinstance(a, BufferArgument)
            else a
            for a in self._inputs
        ]
        wanted = [
            a.buffer.check_output(a.dimensions) if isinstance(a, BufferArgument) else a.dimensions
            for a in self._outputs
        ]
        while True:
            outputs = [
                Argument(a.buffer.space(dimensions), dimensions)
                if isinstance(a, BufferArgument)
                else a
                for a, dimensions in zip(self._outputs, wanted, strict=True)
            ]
            execution = (
                self._prepared.bind_with(inputs, outputs, self._attributes)
                if self._attributes
                else self._prepared.bind(inputs, outputs)
            )
            try:
                outcome = execution.run(deadline_ns, loop_timeout_ns)
            finally:
                execution.close()
            if outcome.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or not self._grow(outcome):
                break
        if outcome.status == ErrorStatus.NONE:
            self._fill(outcome.output_shapes, wanted)
        return outcome

    def _grow(self, outcome: Outcome) -> bool:
        """Make room in buffers that were too small; False if only the client can help."""
        grown = False
        for output, shape in zip(self._outputs, outcome.output_shapes, strict=False):
            if isinstance(output, BufferArgument) and not shape.is_sufficient:
                if not output.buffer.grow(shape.dimensions):
                    raise GeneralFailure(
                        f"device:E7: buffer {output.buffer.token} is too small"
                        f" for an output of {list(shape.dimensions)}"
                    )
                grown = True
        return grown

    def _fill(self, shapes: Sequence[OutputShape], wanted: Sequence[Shape]) -> None:
        """Note what the buffers hold now; their dimensions become the actual ones."""
        found = [shape.dimensions for shape in shapes] or wanted
        for output, dimensions in zip(self._outputs, found, strict=False):
            if isinstance(output, BufferArgument):
                output.buffer.fill(dimensions)

    def _written(self) -> list[BufferArgument]:
        return [output for output in self._outputs if isinstance(output, BufferArgument)]

    def close(self) -> None:
        """Nothing is held: memory and buffers belong to what bound them."""


def invalidate(buffers: Iterable[DeviceBuffer]) -> None:
    """Note that an execution that was to write these buffers has failed."""
    for buffer in buffers:
        buffer.invalidate()
