"""Whatever shapes, axes and indexes are, an operation answers or refuses in its own words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F32, I32, Q8
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import NnburstError

Op = OperationType

#: Large values make outputs of more than 4 GiB, which are refused before memory is asked for.
numbers = st.sampled_from([-(2**31), -4, -2, -1, 0, 1, 1, 1, 2, 2, 3, 4, 2**31 - 1])
scalars = numbers.map(scalar)
flags = st.booleans().map(scalar)


def tensors_of(element: st.SearchStrategy[int], rank: int, most: int) -> st.SearchStrategy[Given]:
    """INT32 tensors of up to `rank` dimensions with extents up to `most`."""

    def fill(shape: list[int]) -> st.SearchStrategy[Given]:
        size = int(np.prod(shape))
        values = st.lists(element, min_size=size, max_size=size)
        return values.map(lambda v: tensor(I32, np.array(v, np.int32).reshape(shape)))

    return st.lists(st.integers(1, most), min_size=1, max_size=rank).flatmap(fill)


vectors = tensors_of(numbers, 1, 5)
matrices = st.one_of(
    tensors_of(numbers, 2, 4),
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4).map(lambda v: tensor(I32, v)),
)
images = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(
    lambda shape: tensor(F32, np.ones(shape))
)

OPERANDS: dict[Op, tuple[st.SearchStrategy[Given], ...]] = {
    Op.RESHAPE: (images, vectors),
    Op.EXPAND_DIMS: (images, scalars),
    Op.SQUEEZE: (images, vectors),
    Op.TRANSPOSE: (images, vectors),
    Op.REVERSE: (images, vectors),
    Op.CHANNEL_SHUFFLE: (images, scalars, scalars),
    Op.DEPTH_TO_SPACE: (images, scalars, flags),
    Op.SPACE_TO_DEPTH: (images, scalars, flags),
    Op.BATCH_TO_SPACE_ND: (images, vectors, flags),
    Op.SPACE_TO_BATCH_ND: (images, vectors, matrices, flags),
    Op.PAD: (images, matrices),
    Op.PAD_V2: (images, matrices, st.just(scalar(1.0))),
    Op.MIRROR_PAD: (images, matrices, scalars),
    Op.SLICE: (images, vectors, vectors),
    Op.STRIDED_SLICE: (images, vectors, vectors, vectors, scalars, scalars, scalars),
    Op.SPLIT: (images, scalars, scalars),
    Op.CONCATENATION: (images, images, scalars),
    Op.PACK: (scalars, images, images),
    Op.GATHER: (images, scalars, matrices),
    Op.TILE: (images, vectors),
    Op.FILL: (vectors, scalars),
    Op.RESIZE_BILINEAR: (images, scalars, scalars, flags, flags, flags),
    Op.RESIZE_NEAREST_NEIGHBOR: (images, scalars, scalars, flags, flags, flags),
    Op.EMBEDDING_LOOKUP: (vectors, images),
    Op.HASHTABLE_LOOKUP: (vectors, vectors, images),
    Op.LSH_PROJECTION: (images, vectors, images, scalars),
    Op.SVDF: (images, images, images, images, images, scalars, scalars),
    Op.RANDOM_MULTINOMIAL: (images, scalars, vectors),
    Op.TOPK_V2: (images, scalars),
}

OUTPUTS = {
    Op.FILL: [output(I32)],
    Op.HASHTABLE_LOOKUP: [output(F32), output(Q8, (0,), 1.0, 0)],
    Op.LSH_PROJECTION: [output(I32)],
    Op.RANDOM_MULTINOMIAL: [output(I32)],
    Op.SPLIT: [output(F32), output(F32)],
    Op.SVDF: [output(F32), output(F32)],
    Op.TOPK_V2: [output(F32), output(I32)],
}


@pytest.mark.parametrize("kind", OPERANDS, ids=lambda kind: kind.name)
@given(draw=st.data())
def test_every_operand_is_answered_or_refused_by_name(kind: Op, draw: st.DataObject) -> None:
    inputs = [draw.draw(operand) for operand in OPERANDS[kind]]
    reason = kind.name
    try:
        run(kind, inputs, OUTPUTS.get(kind, [output(F32)]))
    except NnburstError as error:
        reason = str(error)
    assert kind.name in reason
