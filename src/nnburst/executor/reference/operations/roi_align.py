"""ROI_ALIGN: the average of points sampled between the cells of a region of a feature map.

NNAPI: RoiAlign.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel, named
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.roi_align import RATIOS
from nnburst.executor.reference.arithmetic.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier_smaller_than_one,
    round_half_away,
)
from nnburst.executor.reference.families.box_geometry import Float32
from nnburst.executor.reference.families.regions import bind_regions, channels_last
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES

#: Quantised models weigh in steps of 1/255.
_WEIGHT_SCALE: Final = np.float32(1) / np.float32(255)

#: From the cells around samples [4, samples, channels] and their weights [4, samples, 1] to the
#: values at the samples.
_Weigh = Callable[[Array, Float32], Array]

#: From the sums of the samples of grid cells [columns, channels] and their number to elements.
_Finish = Callable[[Array, int], Array]


@kernel(OperationType.ROI_ALIGN)
def roi_align(node: Node) -> Run:
    """Align one region after the other, row by row of samples."""
    maps = channels_last(node, node.tensor("input").array)
    output = channels_last(node, node.output().array)
    height, width = maps.shape[1:3]
    weigh, finish = _arithmetic(node)
    ratios = [node.value(name) for name in RATIOS]
    regions, batches = bind_regions(node, (height, width)), node.tensor("batches").array

    def run() -> None:
        for region, batch, out in zip(regions(), batches, output, strict=True):
            rows = _sample(region[1], region[3], out.shape[0], ratios[0], height)
            columns = _sample(region[0], region[2], out.shape[1], ratios[1], width)
            samples = rows.ratio * columns.ratio
            lines = rows.lines()
            for cell in range(out.shape[0]):
                own = lines[cell * rows.ratio : (cell + 1) * rows.ratio]
                values = (weigh(*_surroundings(maps[batch], line, columns)) for line in own)
                sums = reduce(np.add, values).reshape(out.shape[1], columns.ratio, -1)
                out[cell] = finish(sums.sum(axis=1), samples)

    return run


@dataclass(frozen=True, slots=True)
class _Samples:
    """Where a region is sampled along one axis of the map.

    Attributes:
        ratio: samples in each cell of the grid.
        before: cell of the map before each sample, for one grid cell after the other.
        after: cell of the map after it.
        distance: from the cell before, 0 to 1.
    """

    ratio: int
    before: npt.NDArray[np.intp]
    after: npt.NDArray[np.intp]
    distance: Float32

    def lines(self) -> list[tuple[int, int, np.float32]]:
        """Each sample's cell before, cell after and distance."""
        return list(zip(self.before.tolist(), self.after.tolist(), self.distance, strict=True))


def _sample(start: np.float32, end: np.float32, count: int, ratio: int, limit: int) -> _Samples:
    """Samples of a grid of `count` cells between `start` and `end`, on a map of `limit` cells."""
    step = np.maximum(end - start, np.float32(1)) / np.float32(count)
    # NNAPI: with 0, as many as the grid's cell has cells of the map, rounded up.
    ratio = ratio or math.ceil(step)
    size = step / np.float32(ratio)
    first = step * np.arange(count, dtype=np.float32) + start
    at = (first[:, None] + size / 2 + size * np.arange(ratio, dtype=np.float32)).reshape(-1)
    before = np.floor(at).astype(np.intp)
    last = before >= limit - 1
    before = np.where(last, limit - 1, before)
    distance = np.where(last, np.float32(0), at - before.astype(np.float32))
    return _Samples(ratio, before, np.where(last, before, before + 1), distance)


def _surroundings(
    array: Array, line: tuple[int, int, np.float32], columns: _Samples
) -> tuple[Array, Float32]:
    """The four cells around each sample of a line of them, and their weights."""
    above, below, y = line
    left, right, x = columns.before, columns.after, columns.distance
    one = np.float32(1)
    cells = [array[above, left], array[above, right], array[below, left], array[below, right]]
    weights = [(one - x) * (one - y), x * (one - y), (one - x) * y, x * y]
    return np.stack(cells), np.stack(weights)[..., None]


def _arithmetic(node: Node) -> tuple[_Weigh, _Finish]:
    tensor, output = node.tensor("input"), node.output()
    if tensor.type not in QUANTIZED_RANGES:
        return _weigh_float, lambda sums, samples: sums / np.float32(samples)
    zero_point = tensor.zero_point
    low, high = QUANTIZED_RANGES[output.type]
    scales = np.float32(tensor.scale) * _WEIGHT_SCALE / np.float32(output.scale)

    def weigh(cells: Array, weights: Float32) -> Array:
        steps = round_half_away(weights / _WEIGHT_SCALE).astype(np.int64)
        return np.asarray((steps * (cells.astype(np.int64) - zero_point)).sum(axis=0))

    def finish(sums: Array, samples: int) -> Array:
        with named(node.type):
            multiplier = quantize_multiplier_smaller_than_one(float(scales / np.float32(samples)))
        stored = multiply_by_quantized_multiplier(sums, *multiplier) + output.zero_point
        return np.clip(stored, low, high)

    return weigh, finish


def _weigh_float(cells: Array, weights: Float32) -> Array:
    return np.asarray((cells * weights).sum(axis=0))
