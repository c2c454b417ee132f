"""Computes operations that move elements, by naive implementations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import Array, Index, back, build, build_flat, naive, nhwc

_T = OperationType


def _moved(x: Array, shape: list[int], source: Callable[[Index], Index]) -> Array:
    return build(shape, lambda at: x[source(at)])


def _ints(x: Array) -> list[int]:
    return [int(v) for v in x.ravel()]


@naive(_T.RESHAPE)
def reshape(x: Array, shape: Array) -> Array:
    """The same elements in row-major order; one extent may be -1."""
    target = _ints(shape)
    known = math.prod(d for d in target if d != -1)
    return build_flat(list(x.flat), [x.size // known if d == -1 else d for d in target])


@naive(_T.EXPAND_DIMS)
def expand_dims(x: Array, axis: int) -> Array:
    """Insert a dimension of extent 1."""
    axis %= x.ndim + 1
    return build_flat(list(x.flat), [*x.shape[:axis], 1, *x.shape[axis:]])


@naive(_T.SQUEEZE)
def squeeze(x: Array, axes: Array) -> Array:
    """Remove the listed dimensions of extent 1."""
    gone = {a % x.ndim for a in _ints(axes)}
    return build_flat(list(x.flat), [n for d, n in enumerate(x.shape) if d not in gone] or [1])


@naive(_T.TRANSPOSE)
def transpose(x: Array, permutation: Array) -> Array:
    """Permute the dimensions."""
    order = _ints(permutation)
    return _moved(
        x,
        [x.shape[d] for d in order],
        lambda at: tuple(at[order.index(d)] for d in range(x.ndim)),
    )


def _padded(x: Array, paddings: Array, outside: Callable[[Index], object]) -> Array:
    before = [int(p) for p in paddings[:, 0]]
    shape = [int(b) + n + int(a) for (b, a), n in zip(paddings, x.shape, strict=True)]

    def element(at: Index) -> object:
        inner = tuple(i - b for i, b in zip(at, before, strict=True))
        inside = all(0 <= i < n for i, n in zip(inner, x.shape, strict=True))
        return x[inner] if inside else outside(inner)

    return build(shape, element)


@naive(_T.PAD)
def pad(x: Array, paddings: Array) -> Array:
    """Put zeros around the tensor."""
    return _padded(x, paddings, lambda _: 0)


@naive(_T.PAD_V2, of_elements=True)
def pad_v2(x: Array, paddings: Array, value: float) -> Array:
    """Put copies of an element around the tensor."""
    return _padded(x, paddings, lambda _: value)


@naive(_T.MIRROR_PAD)
def mirror_pad(x: Array, paddings: Array, mode: int) -> Array:
    """Put the tensor's mirror image around it, with the edge repeated (mode 1) or not (0)."""

    def mirrored(i: int, n: int) -> int:
        if i < 0:
            return -i - mode
        return 2 * n - 2 + mode - i if i >= n else i

    return _padded(
        x,
        paddings,
        lambda at: x[tuple(mirrored(i, n) for i, n in zip(at, x.shape, strict=True))],
    )


@naive(_T.REVERSE)
def reverse(x: Array, axis: Array) -> Array:
    """Reverse one axis."""
    (d,) = _ints(axis)
    return _moved(x, list(x.shape), lambda at: (*at[:d], x.shape[d] - 1 - at[d], *at[d + 1 :]))


@naive(_T.SLICE)
def slice_(x: Array, begin: Array, size: Array) -> Array:
    """Cut out a box; a size of -1 reaches to the end."""
    start = _ints(begin)
    extents = [n - b if s == -1 else s for n, b, s in zip(x.shape, start, _ints(size), strict=True)]
    return _moved(x, extents, lambda at: tuple(i + b for i, b in zip(at, start, strict=True)))


@naive(_T.STRIDED_SLICE)
def strided_slice(
    x: Array,
    begin: Array,
    end: Array,
    strides: Array,
    begin_mask: int,
    end_mask: int,
    shrink_mask: int,
) -> Array:
    """Cut out a box with steps, by Python's slices."""
    lines = []
    for d, n in enumerate(x.shape):
        b = None if begin_mask >> d & 1 else int(begin[d])
        e = None if end_mask >> d & 1 else int(end[d])
        lines.append(range(n)[slice(b, e, int(strides[d]))])
    result = _moved(
        x,
        [len(line) for line in lines],
        lambda at: tuple(line[i] for line, i in zip(lines, at, strict=True)),
    )
    kept = [n for d, n in enumerate(result.shape) if not shrink_mask >> d & 1]
    return result.reshape(kept or [1])


@naive(_T.CONCATENATION)
def concatenation(*arguments: Array | int) -> Array:
    """Join tensors along an axis."""
    *tensors, axis = arguments
    assert isinstance(axis, int)
    return _joined([t for t in tensors if not isinstance(t, int)], axis)


def _joined(tensors: list[Array], axis: int) -> Array:
    owners = [(t, k) for t in tensors for k in range(t.shape[axis])]
    shape = [*tensors[0].shape]
    shape[axis] = len(owners)

    def element(at: Index) -> object:
        tensor, k = owners[at[axis]]
        return tensor[(*at[:axis], k, *at[axis + 1 :])]

    return build(shape, element)


@naive(_T.PACK)
def pack(axis: int, *tensors: Array) -> Array:
    """Stack tensors of one shape along a new axis."""
    shape = [*tensors[0].shape[:axis], len(tensors), *tensors[0].shape[axis:]]
    return build(shape, lambda at: tensors[at[axis]][(*at[:axis], *at[axis + 1 :])])


@naive(_T.SPLIT)
def split(x: Array, axis: int, count: int) -> list[Array]:
    """Split into equal parts along an axis."""
    axis %= x.ndim
    part = x.shape[axis] // count
    shape = [*x.shape[:axis], part, *x.shape[axis + 1 :]]
    return [
        _moved(x, shape, lambda at, k=k: (*at[:axis], k * part + at[axis], *at[axis + 1 :]))  # type: ignore[misc]
        for k in range(count)
    ]


@naive(_T.GATHER)
def gather(x: Array, axis: int, indices: Array) -> Array:
    """The entries of an axis that `indices` lists."""
    axis %= x.ndim
    end = axis + indices.ndim
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    return _moved(x, shape, lambda at: (*at[:axis], indices[at[axis:end]], *at[end:]))


@naive(_T.TILE)
def tile(x: Array, multiples: Array) -> Array:
    """Repeat the tensor along each axis."""
    shape = [n * m for n, m in zip(x.shape, _ints(multiples), strict=True)]
    return _moved(x, shape, lambda at: tuple(i % n for i, n in zip(at, x.shape, strict=True)))


@naive(_T.CHANNEL_SHUFFLE)
def channel_shuffle(x: Array, groups: int, axis: int) -> Array:
    """Entry j of group i goes to place j * groups + i."""
    axis %= x.ndim
    size = x.shape[axis] // groups

    def source(at: Index) -> Index:
        j, i = divmod(at[axis], groups)
        return (*at[:axis], i * size + j, *at[axis + 1 :])

    return _moved(x, list(x.shape), source)


@naive(_T.FILL)
def fill(dimensions: Array, value: float) -> Array:
    """A tensor with one value in all elements."""
    return build(_ints(dimensions), lambda _: value)


@naive(_T.RANK)
def rank(x: Array) -> Array:
    """The number of dimensions."""
    return build((), lambda _: x.ndim)


@naive(_T.DEPTH_TO_SPACE)
def depth_to_space(x: Array, block: int, nchw: bool = False) -> Array:
    """Channels spread over blocks of pixels."""
    x = nhwc(x, nchw)
    n, h, w, c = x.shape
    depth = c // block**2

    def source(at: Index) -> Index:
        b, y, z, k = at
        return b, y // block, z // block, (y % block * block + z % block) * depth + k

    return back(_moved(x, [n, h * block, w * block, depth], source), nchw)


@naive(_T.SPACE_TO_DEPTH)
def space_to_depth(x: Array, block: int, nchw: bool = False) -> Array:
    """Blocks of pixels gathered into channels."""
    x = nhwc(x, nchw)
    n, h, w, c = x.shape

    def source(at: Index) -> Index:
        b, y, z, k = at
        place, channel = divmod(k, c)
        return b, y * block + place // block, z * block + place % block, channel

    return back(_moved(x, [n, h // block, w // block, c * block**2], source), nchw)


@naive(_T.BATCH_TO_SPACE_ND)
def batch_to_space(x: Array, block: Array, nchw: bool = False) -> Array:
    """Batches spread over blocks of pixels."""
    x = nhwc(x, nchw)
    n, h, w, c = x.shape
    bh, bw = _ints(block)
    batches = n // (bh * bw)

    def source(at: Index) -> Index:
        b, y, z, k = at
        return (y % bh * bw + z % bw) * batches + b, y // bh, z // bw, k

    return back(_moved(x, [batches, h * bh, w * bw, c], source), nchw)


@naive(_T.SPACE_TO_BATCH_ND)
def space_to_batch(x: Array, block: Array, paddings: Array, nchw: bool = False) -> Array:
    """Blocks of pixels, padded with zeros, gathered into batches."""
    x = nhwc(x, nchw)
    x = pad(x, np.concatenate([[[0, 0]], paddings, [[0, 0]]]))  # type: ignore[assignment]
    n, h, w, c = x.shape
    bh, bw = _ints(block)

    def source(at: Index) -> Index:
        b, y, z, k = at
        place, batch = divmod(b, n)
        return batch, y * bh + place // bw, z * bw + place % bw, k

    return back(_moved(x, [n * bh * bw, h // bh, w // bw, c], source), nchw)
