"""An encoder whose sequences have another length with each request, on one burst."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the engine")

import nnburst
from nnburst.client.memory import Memory
from nnburst.hal.errors import InvalidArgument, MissedDeadline, OutputInsufficientSize
from nnburst.testing.models.transformers import TransformerSize, encoder

SIZE = TransformerSize(2, 64, 2, 50, 512)
CONTENT = encoder(SIZE)


def ids_of(length: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(length).integers(0, SIZE.words, (1, length))


def in_process(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(CONTENT, options, ["CPUExecutionProvider"])
    (found,) = session.run(None, {"ids": ids, "mask": np.ones_like(ids)})
    return np.asarray(found)


@pytest.fixture(scope="module")
def prepared() -> Iterator[nnburst.PreparedModel]:
    with (
        connect_to("onnxruntime") as device,
        device.prepare(nnburst.load(CONTENT, as_graph=True)) as made,
    ):
        yield made


def test_any_length_is_bit_equal_to_the_engine_in_process(
    prepared: nnburst.PreparedModel,
) -> None:
    lengths = [1, 512, 7, 300, 7, 512, 1, *range(100, 130), 7, 511]
    with prepared.open_burst() as burst:
        for length in lengths:
            ids = ids_of(length)
            (found,) = burst.execute([ids, np.ones_like(ids)]).outputs
            assert found.tobytes() == in_process(ids).tobytes()


def test_lengths_that_are_new_take_no_pools_once_the_longest_was_there(
    prepared: nnburst.PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prepared.open_burst() as burst:
        ids = ids_of(512)
        for _ in range(2):  # the room for outputs grows, once
            burst.execute([ids, np.ones_like(ids)])
        made: list[int] = []
        allocate = Memory.__init__

        def count(memory: Any, size: int, *rest: Any) -> None:
            made.append(size)
            allocate(memory, size, *rest)

        monkeypatch.setattr(Memory, "__init__", count)
        for length in range(1, 500, 20):
            burst.execute([ids_of(length), np.ones_like(ids_of(length))])
        assert not made


def test_an_output_of_unknown_size_gets_room_that_grows_and_is_computed_once_then(
    prepared: nnburst.PreparedModel,
) -> None:
    with prepared.open_burst() as burst:
        for length in (511, 510, 509):
            ids = ids_of(length)
            before = burst.statistics()["executions"]
            burst.execute([ids, np.ones_like(ids)])
            again = burst.statistics()["executions"] - before - 1
            assert again == (1 if length == 511 else 0)
        bound = burst.bind(
            [memory_of(prepared, ids), memory_of(prepared, np.ones_like(ids))],
            output_bytes=[1024],
        )
        with pytest.raises(OutputInsufficientSize) as refused:
            bound.run()
        assert refused.value.output_shapes[0].dimensions == (1, 509, SIZE.width)


def memory_of(prepared: nnburst.PreparedModel, array: npt.NDArray[np.int64]) -> Any:
    view = nnburst.Memory(array.nbytes).array(array.dtype, array.shape)
    view[...] = array
    return view


def test_a_request_that_was_given_up_does_not_write_over_the_next_one(
    prepared: nnburst.PreparedModel,
) -> None:
    with prepared.open_burst() as burst:
        long, short = ids_of(512), ids_of(3)
        burst.execute([long, np.ones_like(long)])
        given_up = 0
        for _ in range(1_000):
            try:  # a busy machine may keep this process waiting until the result is there
                burst.execute([long, np.ones_like(long)], timeout=1e-4)
            except MissedDeadline:
                given_up += 1
            (found,) = burst.execute([short, np.ones_like(short)]).outputs
            assert found.tobytes() == in_process(short).tobytes()
            if given_up == 5:
                break
        assert given_up == 5


def test_inputs_that_do_not_fit_each_other_are_refused_and_the_burst_goes_on(
    prepared: nnburst.PreparedModel,
) -> None:
    with prepared.open_burst() as burst:
        ids = ids_of(5)
        with pytest.raises(InvalidArgument, match="rank 1"):
            burst.execute([ids[0], np.ones_like(ids)])
        with pytest.raises(nnburst.GeneralFailure):
            burst.execute([ids, np.ones((3, 4), np.int64)])
        (found,) = burst.execute([ids, np.ones_like(ids)]).outputs
        assert found.tobytes() == in_process(ids).tobytes()
