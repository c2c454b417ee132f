"""One pool in several drivers: a memory belongs to none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nnburst import Device, Model
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import DataLocation, MemoryPool, Operand
from shared_drivers import connect_to

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def other() -> Iterator[Device]:
    """A second driver that computes."""
    with connect_to("reference") as launched:
        yield launched


@pytest.mark.parametrize("burst", [False, True], ids=["socket", "burst"])
def test_output_of_one_driver_is_the_input_of_the_next_where_it_is(
    device: Device, other: Device, make_model: Callable[..., Model], burst: bool
) -> None:
    pool = device.allocate(24 * 3)
    x, y, z = (pool.array(np.float32, (2, 3), 24 * n) for n in range(3))
    x[...] = X
    with device.prepare(make_model()) as first, other.prepare(make_model()) as second:
        for model, inputs, outputs in ((first, [x, x], [y]), (second, [x, y], [z])):
            if burst:
                with model.open_burst() as opened:
                    assert opened.bind(inputs, outputs).run().outputs[0] is not None
            else:
                assert model.execute(inputs, outputs).outputs[0] is outputs[0]
    assert z.tolist() == (3 * X).tolist()


def test_constants_of_one_pool_serve_models_in_two_drivers(
    device: Device, other: Device, make_model: Callable[..., Model]
) -> None:
    weights = other.allocate(24)
    weights.array(np.float32, (2, 3))[...] = X
    model = make_model()
    operands = list(model.main.operands)
    constant = model.main.input_indexes[1]
    operands[constant] = Operand(
        type=operands[constant].type,
        dimensions=(2, 3),
        number_of_consumers=1,
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(0, 0, 24),
    )
    main = type(model.main)(
        tuple(operands),
        model.main.operations,
        model.main.input_indexes[:1],
        model.main.output_indexes,
    )
    model = Model(main=main, operand_values=model.operand_values, pools=(MemoryPool(24),))
    for driver in (device, other):
        with driver.prepare(model, pools=[weights]) as prepared:
            assert prepared.execute([X]).outputs[0].tolist() == (2 * X).tolist()


def test_pool_outlives_the_driver_that_it_was_made_through(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with connect_to("null") as gone:
        x = gone.allocate(24).array(np.float32, (2, 3))
    x[...] = X
    with device.prepare(make_model()) as prepared:
        assert prepared.execute([x, x]).outputs[0].tolist() == (2 * X).tolist()
