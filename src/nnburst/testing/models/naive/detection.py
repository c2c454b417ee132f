"""Computes operations that pick boxes, key points, classes or hashes naively."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive.registry import Array, Value, build, build_flat, naive, real
from nnburst.testing.models.naive.spatial import axis_aligned_bbox_transform

_T = OperationType
_Box = Sequence[float]


def _overlap(a: _Box, b: _Box) -> float:
    """The intersection of two boxes over their union; 0 if they have no area."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    union = sum(areas) - width * height
    return width * height / union if union else 0.0


def _suppressed(
    scores: dict[int, float],
    boxes: Callable[[int], _Box],
    most: int,
    weigh: Callable[[float], float | None],
    least: float = -math.inf,
) -> list[tuple[int, float]]:
    """Pick entries, the best first, each with its score at that time.

    NNAPI: GenerateProposals.cpp. Of equal scores the first in the list wins. A pick is swapped with the first
    remaining entry, and the last remaining entry replaces each entry that is dropped.

    Args:
        scores: scores by entry.
        boxes: returns the box of an entry.
        most: the most picks; less than 0 for no limit.
        weigh: returns the factor for a score from the overlap with a picked entry; None drops the entry.
        least: entries with a lower score are dropped, too.
    """
    now, left = dict(scores), list(scores)
    picked: list[tuple[int, float]] = []
    while left and len(picked) != most:
        at = max(range(len(left)), key=lambda place: now[left[place]])
        left[0], left[at] = left[at], left[0]
        best = left.pop(0)
        picked.append((best, now[best]))
        place = 0
        while place < len(left):
            factor = weigh(_overlap(boxes(best), boxes(left[place])))
            if factor is None or now[left[place]] * factor < least:
                left[place] = left[-1]
                left.pop()
            else:
                now[left[place]] *= factor
                place += 1
    return picked


def _hard(threshold: float) -> Callable[[float], float | None]:
    """Drop entries whose overlap is at least `threshold`."""
    return lambda overlap: 1.0 if overlap < threshold else None


class _Found(NamedTuple):
    """A box in the result."""

    kind: int
    score: float
    box: _Box
    batch: int = 0


def _columns(found: Sequence[_Found]) -> tuple[Array, Array, Array, Array]:
    """Turn boxes into arrays of scores, boxes, classes and batches."""
    count = (len(found),)
    return (
        build_flat([f.score for f in found], count),
        build((len(found), 4), lambda at: found[at[0]].box[at[1]]),
        build_flat([f.kind for f in found], count),
        build_flat([f.batch for f in found], count),
    )


@naive(_T.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(
    scores: Array,
    regions: Array,
    batches: Array,
    threshold: float,
    most: int,
    kernel: int,
    overlap: float,
    sigma: float,
    least: float,
) -> list[Array]:
    """The best boxes of each batch that overlap little, by class and score; class 0 is the background."""
    weigh: Callable[[float], float | None] = [
        lambda o: 1.0 if o < overlap else 0.0,
        lambda o: 1.0 if o < overlap else 1 - o,
        lambda o: math.exp(-o * o / sigma),
    ][kernel]
    found: list[_Found] = []
    for batch in dict.fromkeys(batches):
        rows = [n for n in range(scores.shape[0]) if batches[n] == batch]
        here: list[_Found] = []
        for kind in range(1, scores.shape[1]):

            def box(n: int, kind: int = kind) -> _Box:
                return list(regions[n, 4 * kind : 4 * kind + 4])

            above = {n: scores[n, kind] for n in rows if scores[n, kind] > threshold}
            picked = _suppressed(above, box, most, weigh, least)
            here += [_Found(kind, score, box(n), batch) for n, score in picked]
        here.sort(key=lambda f: -f.score)
        here = here if most < 0 else here[:most]
        found += sorted(here, key=lambda f: (f.kind, -f.score))
    return list(_columns(found))


@naive(_T.GENERATE_PROPOSALS)
def generate_proposals(
    scores: Array,
    deltas: Array,
    anchors: Array,
    images: Array,
    *settings: float,
) -> list[Array]:
    """The best anchors of each image, moved by deltas, that are large and overlap little."""
    height_step, width_step, before, after, threshold, least, nchw = settings
    if nchw:
        scores, deltas = (x.transpose(0, 2, 3, 1) for x in (scores, deltas))
    found: list[_Found] = []
    count, height, width, kinds = scores.shape
    places = [(y, x, a) for y in range(height) for x in range(width) for a in range(kinds)]
    steps = (width_step, height_step)
    for batch in range(count):
        at = [
            [anchors[a, side] + (x, y)[side % 2] * steps[side % 2] for side in range(4)]
            for y, x, a in places
        ]
        moves = [deltas[batch, y, x, 4 * a + side] for y, x, a in places for side in range(4)]
        boxes = axis_aligned_bbox_transform(
            np.array(at, object),
            build_flat(moves, (len(places), 4)),
            build_flat([batch] * len(places), (len(places),)),
            images,
        )
        assert isinstance(boxes, np.ndarray)
        best = {n: scores[batch, y, x, a] for n, (y, x, a) in enumerate(places)}
        if 0 < before < len(best):
            best = {n: best[n] for n in sorted(best, key=lambda n: -best[n])[: int(before)]}
        large = {n: s for n, s in best.items() if _is_large(boxes[n], least, images[batch])}
        most = int(after) if after > 0 else -1
        picked = _suppressed(large, boxes.__getitem__, most, _hard(threshold))
        found += [_Found(0, score, list(boxes[n]), batch) for n, score in picked]
    by_score, by_box, _, by_batch = _columns(found)
    return [by_score, by_box, by_batch]


def _is_large(box: _Box, least: float, image: _Box) -> bool:
    x1, y1, x2, y2 = box
    inside = (x1 + x2) / 2 < image[1] and (y1 + y2) / 2 < image[0]
    return x2 - x1 > least and y2 - y1 > least and inside


@naive(_T.DETECTION_POSTPROCESSING)
def detection_postprocessing(
    scores: Array, deltas: Array, anchors: Array, *settings: float
) -> list[Array]:
    """The best boxes (y1, x1, y2, x2) of each image, their classes, and their number."""
    *scales, regular, most, classes, by_class, least, threshold, has_background = settings
    most, classes, by_class = int(most), int(classes), int(by_class)
    room = most if regular else most * classes
    found: list[list[_Found]] = []
    for batch in range(scores.shape[0]):
        boxes = [_decoded(deltas[batch, a], anchors[a], scales) for a in range(len(anchors))]
        table = scores[batch]
        found.append(
            _of_each_class(table, boxes, least, threshold, by_class)[:most]
            if regular
            else _of_each_anchor(table, boxes, least, threshold, (most, classes))
        )
    shape = (len(found), room)

    def at(b: int, n: int) -> _Found:
        empty = _Found(0 if has_background else 1, 0.0, (0.0,) * 4)
        return found[b][n] if n < len(found[b]) else empty

    shift = 0 if has_background else 1
    return [
        build(shape, lambda i: at(*i).score),
        build((*shape, 4), lambda i: at(i[0], i[1]).box[i[2]]),
        build(shape, lambda i: at(*i).kind - shift),
        build_flat([len(each) for each in found], shape[:1]),
    ]


def _decoded(deltas: _Box, anchor: _Box, scales: Sequence[float]) -> _Box:
    dy, dx, dh, dw = deltas[:4]
    y, x, h, w = anchor
    sy, sx, sh, sw = scales
    middle = (y + h * dy / sy, x + w * dx / sx)
    half = (h * math.exp(dh / sh) / 2, w * math.exp(dw / sw) / 2)
    # y1, x1, y2, x2
    return [m + sign * n for sign in (-1, 1) for m, n in zip(middle, half, strict=True)]


def _of_each_class(
    scores: Array, boxes: Sequence[_Box], least: float, threshold: float, most: int
) -> list[_Found]:
    found = []
    for kind in range(1, scores.shape[1]):
        above = {n: scores[n, kind] for n in range(len(boxes)) if scores[n, kind] > least}
        picked = _suppressed(above, boxes.__getitem__, most, _hard(threshold))
        found += [_Found(kind, score, boxes[n]) for n, score in picked]
    return sorted(found, key=lambda f: -f.score)


def _of_each_anchor(
    scores: Array, boxes: Sequence[_Box], least: float, threshold: float, most: tuple[int, int]
) -> list[_Found]:
    kinds = range(1, scores.shape[1])
    best = {n: max(scores[n, 1:]) for n in range(len(boxes))}
    above = {n: score for n, score in best.items() if score > least}
    found = []
    for n, _ in _suppressed(above, boxes.__getitem__, most[0], _hard(threshold)):
        order = sorted(kinds, key=lambda kind: -scores[n, kind])[: most[1]]
        found += [_Found(kind, scores[n, kind], boxes[n]) for kind in order]
    return found


@naive(_T.HEATMAP_MAX_KEYPOINT, of_values=True)
def heatmap_max_keypoint(heatmap: Value, regions: Value, nchw: Value) -> list[Array]:
    """Score and position of each map's maximum, refined to the top of a paraboloid through its neighbours."""
    maps, boxes = real(heatmap), real(regions)
    if not real(nchw):
        maps = maps.transpose(0, 3, 1, 2)
    small = 1e-3 if heatmap.meta.kind is OperandType.TENSOR_FLOAT16 else 1e-5
    tops = {(n, k): _top(maps[n, k], small) for n in range(len(maps)) for k in range(maps.shape[1])}
    size = maps.shape[2]

    def place(at: tuple[int, ...]) -> float:
        n, k, axis = at
        start, end = boxes[n][axis], boxes[n][axis + 2]
        return float((tops[n, k][1 + axis] + 0.5) / size * (end - start) + start)

    shape = maps.shape[:2]
    return [build(shape, lambda at: tops[at[0], at[1]][0]), build((*shape, 2), place)]


def _top(pixels: Array, small: float) -> tuple[float, float, float]:
    """Score, x and y of the top of a paraboloid through the maximum and its neighbours."""
    size = len(pixels)
    y, x = max(np.ndindex(size, size), key=lambda at: pixels[at])

    def pixel(down: int, right: int) -> float:
        place = [abs(y + down), abs(x + right)]
        return float(pixels[tuple(size - 2 if p == size else p for p in place)])

    centre = pixel(0, 0)
    slope = (-(pixel(0, 1) - pixel(0, -1)) / 2, -(pixel(1, 0) - pixel(-1, 0)) / 2)
    xx = pixel(0, 1) + pixel(0, -1) - 2 * centre
    yy = pixel(1, 0) + pixel(-1, 0) - 2 * centre
    xy = (pixel(1, 1) - pixel(1, -1) - pixel(-1, 1) + pixel(-1, -1)) / 4
    determinant = xx * yy - xy * xy
    if abs(determinant) < small + small * xx * yy:
        return centre, float(x), float(y)
    dx = (yy * slope[0] - xy * slope[1]) / determinant
    dy = (xx * slope[1] - xy * slope[0]) / determinant
    longest = max(abs(dx), abs(dy))
    if longest > 1.5:
        dx, dy = dx * 1.5 / longest, dy * 1.5 / longest
    bend = xx * dx * dx + 2 * xy * dx * dy + yy * dy * dy
    return centre - slope[0] * dx - slope[1] * dy + bend / 2, x + dx, y + dy


#: Probability below which a draw is taken not to happen.
_NEVER: Final = 1e-20


def chances(logits: Sequence[float]) -> list[float]:
    """The probability of each class of a row of RANDOM_MULTINOMIAL."""
    weights = [math.exp(v - max(logits)) for v in logits]
    return [w / math.fsum(weights) for w in weights]


@naive(_T.RANDOM_MULTINOMIAL)
def random_multinomial(logits: Array, count: int, seeds: Array) -> Array:
    """The class of each draw.

    Raises:
        ArithmeticError: the result is random: no class has all of a row's probability.
    """
    del seeds
    classes = []
    for row in logits:
        shares = chances(row)
        sure = max(range(len(shares)), key=lambda k: shares[k])
        if math.fsum(share for k, share in enumerate(shares) if k != sure) > _NEVER:
            raise ArithmeticError("a draw by chance")
        classes.append(sure)
    return build((len(logits), count), lambda at: classes[at[0]])


# -- LSH_PROJECTION --------------------------------------------------------------------------------


_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MASK = 2**64 - 1


def _rotated(x: int, by: int) -> int:
    x &= _MASK
    return (x >> by | x << (64 - by)) & _MASK


def _mixed(u: int, v: int, factor: int) -> int:
    a = (u ^ v) & _MASK
    a = a * factor & _MASK
    a ^= a >> 47
    b = (v & _MASK ^ a) * factor & _MASK
    b ^= b >> 47
    return b * factor & _MASK


def fingerprint64(data: bytes) -> int:
    """FarmHash's Fingerprint64 of 4 to 64 bytes.

    Raises:
        ValueError: the data are shorter or longer.
    """
    n = len(data)
    factor = _K2 + 2 * n

    def at(place: int, size: int = 8) -> int:
        place %= n
        return int.from_bytes(data[place : place + size], "little")

    if not 4 <= n <= 64:
        raise ValueError(f"{n} bytes, expected 4 to 64")
    if n <= 7:
        return _mixed(n + (at(0, 4) << 3), at(-4, 4), factor)
    if n <= 16:
        a, b = at(0) + _K2, at(-8)
        c = _rotated(b, 37) * factor + a
        return _mixed(c, (_rotated(a, 25) + b) * factor, factor)
    if n <= 32:
        a, b, c, d = at(0) * _K1, at(8), at(-8) * factor, at(-16) * _K2
        first = _rotated(a + b, 43) + _rotated(c, 30) + d
        return _mixed(first, a + _rotated(b + _K2, 18) + c, factor)
    a, b, c, d = at(0) * _K2, at(8), at(-8) * factor, at(-16) * _K2
    y = (_rotated(a + b, 43) + _rotated(c, 30) + d) & _MASK
    z = _mixed(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = at(16) * factor, at(24)
    g, h = (y + at(-32)) * factor, (z + at(-24)) * factor
    first = _rotated(e + f, 43) + _rotated(g, 30) + h
    return _mixed(first, e + _rotated(f + a, 18) + g, factor)


@naive(_T.LSH_PROJECTION, of_values=True)
def lsh_projection(hashes: Value, x: Value, weights: Value, kind: Value) -> Array:
    """Hash a tensor's rows: a bit for the side of each random plane, or a number made of each hash's bits."""
    weight = [1.0] * len(x.array) if weights.is_omitted else list(real(weights))

    def bit(seed: float) -> int:
        prefix = np.float32(seed).tobytes()
        total = 0.0
        for row, by in zip(x.array, weight, strict=True):
            found = fingerprint64(prefix + row.tobytes())
            total += by * float(found - 2**64 if found >> 63 else found)
        return int(total > 0)

    table = real(hashes)
    bits = [[bit(seed) for seed in row] for row in table]
    if real(kind) == 2:  # dense
        return build_flat([b for row in bits for b in row], (table.size,))
    numbers = [int("".join(map(str, row)), 2) for row in bits]
    if real(kind) == 3:  # each hash has numbers of its own
        numbers = [n + (i << table.shape[1]) for i, n in enumerate(numbers)]
    return build_flat(numbers, (len(numbers),))
