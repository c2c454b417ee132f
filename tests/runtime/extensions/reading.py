"""Has executors whose output shows the attributes that they were given, for drivers of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnburst.executor.base import (
    Argument,
    Execution,
    Executor,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.model import Model

#: The extension that the executors have, and the folder that a driver finds them in.
EXTENSION = "com.example.reading"
FOLDER = Path(__file__).parent


def total(attributes: Sequence[ExtensionAttribute]) -> float:
    """A number that depends on all codes, values and extensions of attributes."""
    return float(sum(a.code + sum(a.value) + len(a.extension) for a in attributes))


class ReadingExecution(Execution):
    """Writes two numbers for two lists of attributes."""

    def __init__(self, outputs: Sequence[Argument], numbers: tuple[float, float]) -> None:
        self._outputs = outputs
        self._numbers = numbers

    def run(self, *_limits: object) -> Outcome:
        """The numbers."""
        buffer = self._outputs[0].buffer
        assert buffer is not None
        buffer.view(np.float32)[:2] = self._numbers
        return Outcome()


class ReadingPrepared(Prepared):
    """Keeps the attributes that it was prepared with."""

    def __init__(self, attributes: Sequence[ExtensionAttribute]) -> None:
        self._attributes = attributes

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> ReadingExecution:
        """Bind without attributes of the execution."""
        return self.bind_with(inputs, outputs, ())

    def bind_with(
        self,
        inputs: Sequence[Argument],  # noqa: ARG002
        outputs: Sequence[Argument],
        attributes: Sequence[ExtensionAttribute],
    ) -> ReadingExecution:
        """Bind an execution that writes the preparation's number, then the execution's."""
        return ReadingExecution(outputs, (total(self._attributes), total(attributes)))


class Reading(Executor):
    """Computes only numbers for the attributes that it was given."""

    name = "reading"

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extension of this module."""
        return (Extension(EXTENSION),)

    def prepare(self, model: Model, pools: object, options: PrepareOptions) -> ReadingPrepared:  # type: ignore[override]  # noqa: ARG002
        """Keep the attributes."""
        return ReadingPrepared(options.attributes)


class OldReading(Reading):
    """The same executor with a feature level below 8."""

    feature_level = FeatureLevel.AIDL_V3
