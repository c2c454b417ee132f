"""Requests on the engine: memory of arguments, threads that run them, failures."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from executor.litert.networks import (
    Array,
    addition,
    aligned,
    bind,
    convolution,
    gathering,
    needs_engine,
)
from nnburst.executor.base import Argument
from nnburst.executor.built_in import litert
from nnburst.executor.graph.tensor import read_only
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument

pytestmark = needs_engine

INPUT_BYTES, OUTPUT_BYTES = 16 * 16 * 3 * 4, 8 * 8 * 8 * 4


def image(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(INPUT_BYTES // 4).astype(np.float32)


def test_result_is_the_reference_executors(route: str) -> None:
    model = convolution()
    outputs = []
    for executor in (litert(), ReferenceExecutor()):
        prepared = executor.prepare(model, [])
        given, taken = aligned(INPUT_BYTES), aligned(OUTPUT_BYTES)
        given[...] = image(0).view(np.uint8)
        assert bind(prepared, model, [read_only(given), taken]).run().status is ErrorStatus.NONE
        outputs.append(taken.view(np.float32))
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("offset", "copied"), [(0, 0), (4, 32), (16, 32), (64, 0)])
def test_only_arguments_off_the_alignment_are_copied(offset: int, copied: int) -> None:
    model = addition()
    prepared = litert().prepare(model, [])
    given, taken = aligned(16, offset), aligned(16, offset)
    execution = bind(prepared, model, [given, taken])
    given.view(np.float32)[...] = [1, 2, 3, 4]
    assert execution.run().status is ErrorStatus.NONE
    assert taken.view(np.float32).tolist() == [2, 4, 6, 8]
    assert execution._binding.copied_bytes == copied  # type: ignore[attr-defined]


def test_odd_addresses_are_fine() -> None:
    model = addition()
    prepared = litert().prepare(model, [])
    given, taken = aligned(16, 3), aligned(16, 5)
    given[...] = np.array([1, 2, 3, 4], np.float32).view(np.uint8)
    assert bind(prepared, model, [given, taken]).run().status is ErrorStatus.NONE
    assert taken.tobytes() == np.array([2, 4, 6, 8], np.float32).tobytes()


def test_bytes_beside_an_output_stay_as_they_are(route: str) -> None:
    model = addition(3)
    prepared = litert().prepare(model, [])
    memory = aligned(64)
    memory[...] = 0xA5
    assert bind(prepared, model, [aligned(12), memory]).run().status is ErrorStatus.NONE
    assert set(memory[12:].tolist()) == {0xA5}


@pytest.mark.parametrize("shift", [0, 4])
def test_input_may_end_at_the_last_byte_of_a_read_only_pool(route: str, shift: int) -> None:
    size = (INPUT_BYTES // 4096 + 1) * 4096
    model = convolution()
    prepared = litert().prepare(model, [])
    expected, whole = aligned(OUTPUT_BYTES), aligned(INPUT_BYTES)
    whole[...] = image(1).view(np.uint8)
    bind(prepared, model, [whole, expected]).run()
    memory = SharedMemory.create(size - shift)
    place = size - shift - INPUT_BYTES
    memory.map(writable=True)[place : place + INPUT_BYTES] = whole
    given = memory.map(writable=False)[place : place + INPUT_BYTES]
    taken = aligned(OUTPUT_BYTES)
    execution = bind(prepared, model, [given, taken])
    assert execution.run().status is ErrorStatus.NONE
    assert taken.tobytes() == expected.tobytes()
    execution.close()
    memory.close()


def run_at_once(model_runs: int, *, bound_by_one_thread: bool) -> int:
    """The number of runs of two requests on two threads that gave another result than the first."""
    model = convolution()
    prepared = litert().prepare(model, [])
    wrong = [0, 0]
    ready = threading.Barrier(2)

    def request(seed: int) -> tuple[Array, object]:
        given, taken = aligned(INPUT_BYTES), aligned(OUTPUT_BYTES)
        given[...] = image(seed).view(np.uint8)
        return taken, bind(prepared, model, [given, taken])

    requests = [request(0), request(1)] if bound_by_one_thread else []

    def work(seed: int) -> None:
        taken, execution = requests[seed] if bound_by_one_thread else request(seed)
        execution.run()  # type: ignore[attr-defined]
        expected = taken.tobytes()
        ready.wait()
        for _ in range(model_runs):
            taken[...] = 0
            execution.run()  # type: ignore[attr-defined]
            wrong[seed] += taken.tobytes() != expected
        execution.close()  # type: ignore[attr-defined]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(wrong)


@pytest.mark.parametrize("bound_by_one_thread", [True, False])
def test_two_threads_never_see_each_others_results(route: str, bound_by_one_thread: bool) -> None:
    assert run_at_once(300, bound_by_one_thread=bound_by_one_thread) == 0


@pytest.mark.campaign
def test_ten_thousand_runs_on_two_threads_agree() -> None:
    assert run_at_once(10_000, bound_by_one_thread=False) == 0


def test_output_without_room_reports_what_it_needs(route: str) -> None:
    model = addition()
    prepared = litert().prepare(model, [])
    execution = prepared.bind([Argument(aligned(16), (4,))], [Argument(aligned(15), (0,))])
    outcome = execution.run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [(s.dimensions, s.is_sufficient) for s in outcome.output_shapes] == [((4,), False)]
    assert execution.native is None


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1])
def test_index_out_of_range_fails_the_execution_only(route: str, index: int) -> None:
    model = gathering()
    prepared = litert().prepare(model, [])
    given, taken = aligned(8), aligned(24)
    execution = bind(prepared, model, [given, taken])
    given.view(np.int32)[...] = [0, index]
    outcome = execution.run()
    assert outcome.status is ErrorStatus.GENERAL_FAILURE
    assert outcome.message.startswith("LiteRT:")
    given.view(np.int32)[...] = [3, 1]
    assert execution.run().status is ErrorStatus.NONE
    assert taken.view(np.float32).tolist() == [9, 10, 11, 3, 4, 5]


def test_indices_are_copied_before_they_are_used() -> None:
    model = gathering()
    prepared = litert().prepare(model, [])
    execution = bind(prepared, model, [aligned(8), aligned(24)])
    assert execution._binding.copied_bytes == 8  # type: ignore[attr-defined]


def test_closed_execution_does_nothing(route: str) -> None:
    model = addition()
    execution = bind(litert().prepare(model, []), model, [aligned(16), aligned(16)])
    execution.close()
    execution.close()
    assert execution.run().status is ErrorStatus.INVALID_ARGUMENT
    assert execution.native is None


def test_omitted_input_is_refused() -> None:
    prepared = litert().prepare(addition(), [])
    with pytest.raises(GeneralFailure, match="omitted"):
        prepared.bind([Argument(None, (4,))], [Argument(aligned(16), (4,))])


def test_input_with_too_few_bytes_is_refused() -> None:
    prepared = litert().prepare(addition(), [])
    with pytest.raises(InvalidArgument, match="R11"):
        prepared.bind([Argument(aligned(15), (4,))], [Argument(aligned(16), (4,))])


def test_missed_deadline_is_reported_before_the_engine_runs() -> None:
    model = addition()
    execution = bind(litert().prepare(model, []), model, [aligned(16), aligned(16)])
    assert execution.run(deadline_ns=1).status is ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_bound_request_outlives_its_prepared_model(route: str) -> None:
    model = addition()
    prepared = litert().prepare(model, [])
    given, taken = aligned(16), aligned(16)
    execution = bind(prepared, model, [given, taken])
    prepared.close()
    del prepared
    given.view(np.float32)[...] = [1, 2, 3, 4]
    assert execution.run().status is ErrorStatus.NONE
    assert taken.view(np.float32).tolist() == [2, 4, 6, 8]
