"""Real networks through a driver: as LiteRT's own Interpreter, from any place in memory, two at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnburst.hal import environment
from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from executor.litert.networks import Array
from executor.litert.speech_features import spoken_seconds
from nnburst.bench.model.accuracy import by_driver, by_interpreter, compare
from nnburst.bench.model.data_sets import DataSet, data_sets, random_input
from nnburst.hal.model import DTYPES, Operand
from nnburst.testing.models.network_file import NetworkFile

pytestmark = pytest.mark.shared

#: Each network, and real values of black and white, if it looks at pictures.
NETWORKS = {
    "kws_int8": None,
    "kws_float": None,
    "resnet8_int8": (0.0, 255.0),
    "resnet8_float": (0.0, 255.0),
    "vww_96_int8": (0.0, 1.0),
    "mobilenet_v1_0.25_128_uint8": (-1.0, 1.0),
    "mobilenet_v2_1.0_224_uint8": (-1.0, 1.0),
}
#: Random inputs, and as many photographs and digits, if their packages are installed.
EXAMPLES = 200
#: Executions of each of two bursts at once.
RUNS = environment.RUNS.read()
PAGE = 4096


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("litert") as launched:
        yield launched


def read(name: str, shared_dir: Path) -> NetworkFile:
    return NetworkFile.read(shared_dir / "models" / f"{name}.tflite")


def stored(real: Array, operand: Operand) -> Array:
    """Real numbers as an input stores them."""
    dtype = DTYPES[operand.type]
    if dtype.kind == "f":
        return real.astype(dtype).reshape(operand.dimensions)
    limits = np.iinfo(dtype)
    steps = np.rint(real / operand.scale) + operand.zero_point
    return np.clip(steps, limits.min, limits.max).astype(dtype).reshape(operand.dimensions)


def test_every_network_of_the_folder_is_tried(shared_dir: Path) -> None:
    assert {path.stem for path in (shared_dir / "models").glob("*.tflite")} == NETWORKS.keys()


@pytest.mark.every_day(*(name for name in NETWORKS if "mobilenet_v2" not in name))
@pytest.mark.parametrize("name", NETWORKS)
def test_network_answers_as_the_interpreter_does(
    name: str, device: nnburst.Device, shared_dir: Path
) -> None:
    network = read(name, shared_dir)
    sets = data_sets(network.inputs, EXAMPLES, 1, NETWORKS[name])
    if name.startswith("kws"):
        spoken = tuple((stored(second, network.inputs[0]),) for second in spoken_seconds())
        sets.append(DataSet("speech", "the shipped clip", spoken))
    with by_driver(network, device) as ours:
        found = compare(ours.compute, by_interpreter(network, "litert"), sets, network.outputs)
    assert [agreement.data_set for agreement in found] == [s.name for s in sets]
    for agreement in found:
        assert agreement.examples >= 20
        assert agreement.same_top == agreement.examples, agreement.data_set
        if name.endswith("int8"):  # the same kernels: to the bit
            assert set(agreement.steps) == {0}, agreement.data_set


@pytest.mark.counted
@pytest.mark.parametrize("name", NETWORKS)
def test_two_bursts_at_once_never_mix_their_results(
    name: str, device: nnburst.Device, shared_dir: Path
) -> None:
    network, random = read(name, shared_dir), np.random.default_rng(4)
    differences, done = [0, 0], [0, 0]
    together = threading.Barrier(2)

    def work(which: int, bound: nnburst.BoundRequest, expected: Array) -> None:
        together.wait(60)
        for _ in range(RUNS):
            bound.outputs[0][...] = 0
            bound.run()
            differences[which] += bound.outputs[0].tobytes() != expected.tobytes()
            done[which] += 1

    with (
        device.prepare(network.imported) as prepared,
        prepared.open_burst() as first,
        prepared.open_burst() as second,
    ):
        threads = []
        for which, burst in enumerate((first, second)):
            bound = burst.bind()
            for place, operand in zip(bound.inputs, network.inputs, strict=True):
                place[...] = random_input(operand, random)
            bound.run()  # alone
            expected = bound.outputs[0].copy()
            threads.append(threading.Thread(target=work, args=(which, bound, expected)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert done == [RUNS, RUNS]
    assert differences == [0, 0]


@pytest.mark.parametrize("fills_pages", [False, True], ids=["whole pool", "end of a page"])
@pytest.mark.parametrize("name", NETWORKS)
def test_input_may_end_at_the_last_byte_of_its_pool(
    name: str, fills_pages: bool, device: nnburst.Device, shared_dir: Path
) -> None:
    network = read(name, shared_dir)
    [operand] = network.inputs
    value = random_input(operand, np.random.default_rng(6))
    offset = -value.nbytes % PAGE if fills_pages else 0
    with device.prepare(network.imported) as prepared, prepared.open_burst() as burst:
        [expected] = (output.copy() for output in burst.execute([value]).outputs)
        with device.allocate(offset + value.nbytes) as pool:
            place = pool.array(value.dtype, value.shape, offset)
            place[...] = value
            [found] = burst.bind([place]).run().outputs
            np.testing.assert_array_equal(found, expected)
