"""A model of two drivers, each of which takes one of two operations, goes from C to both by one call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from capi.interface import Addition, CInterface
from nnburst.capi import installed
from nnburst.runtime import Manager
from runtime.half_drivers import two_halves


@pytest.fixture
def c(monkeypatch: pytest.MonkeyPatch) -> Iterator[CInterface]:
    """The library over a driver that adds and one that multiplies."""
    if not installed.LIBRARY.is_file():
        pytest.skip(f"no {installed.LIBRARY}: this nnburst was built without")
    with two_halves() as manager:
        monkeypatch.setattr(Manager, "_one", manager)
        yield CInterface()


@pytest.mark.every_day("burstCompute-True", "compute-False")
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("way", ["burstCompute", "compute"])
def test_after_two_computations_both_steps_need_no_python(
    c: CInterface, computations: list[str], way: str, explicit: bool
) -> None:
    product = Addition(c, explicit=explicit, operations=2)
    for value in range(50):
        assert product.compute(value, way) == 0
    first = "burst_compute" if way == "burstCompute" else "compute"
    assert computations == [first, "_compute_bound"]
    product.close()


def test_an_execution_for_each_inference_needs_no_python_either(
    c: CInterface, computations: list[str]
) -> None:
    product = Addition(c, explicit=True, operations=2)
    for value in range(50):
        assert product.compute_once(value) == 0
    assert computations == ["burst_compute", "burst_compute", "_compute_bound"]
    product.close()
