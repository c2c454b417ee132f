"""Fixtures with driver processes and small models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

import nnburst
from client.burst_helpers import copy_model
from nnburst import Device, Model, ModelBuilder, OperandType, OperationType, PreparedModel
from shared_drivers import connect_to


def add_model(
    dimensions: Sequence[int] = (2, 3),
    *,
    output: Sequence[int] | None = None,
    kind: OperandType = OperandType.TENSOR_FLOAT32,
) -> Model:
    """a + b of one shape; `output` may leave extents unknown."""
    builder = ModelBuilder()
    a, b = builder.input(kind, dimensions), builder.input(kind, dimensions)
    activation = builder.scalar(0)
    c = builder.output(kind, dimensions if output is None else output)
    builder.operation(OperationType.ADD, [a, b, activation], [c])
    return builder.build()


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    """A driver that computes, shared by tests that do not end it."""
    with connect_to("reference") as launched:
        yield launched


@pytest.fixture
def own_device() -> Iterator[Device]:
    """A driver of the test's own, which may be killed."""
    with nnburst.launch("null") as launched:
        yield launched


@pytest.fixture(scope="module")
def still() -> Iterator[Device]:
    """A driver that tests may stop and continue."""
    with connect_to("reference") as launched:
        yield launched


@pytest.fixture(scope="module")
def relu(still: Device) -> Iterator[PreparedModel]:
    """RELU of a float32 tensor of shape (2,), in the driver that may be stopped."""
    with still.prepare(copy_model()) as model:
        yield model


@pytest.fixture(scope="module")
def relu_by_socket(still: Device) -> Iterator[PreparedModel]:
    """As `relu`, without a burst of its own, which is there for seconds after the last execution."""
    with still.prepare(copy_model(), bursts=False) as model:
        yield model


@pytest.fixture
def make_model() -> Callable[..., Model]:
    """Builds a model that adds two tensors."""
    return add_model


@pytest.fixture
def prepared(device: Device) -> Iterator[PreparedModel]:
    """Adds two float32 tensors of shape (2, 3)."""
    with device.prepare(add_model()) as model:
        yield model


@pytest.fixture
def pair() -> list[np.ndarray]:
    """Inputs that fit `prepared`."""
    return [np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)]
