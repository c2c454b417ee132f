"""Non-maximum suppression: of boxes that overlap, only the one with the best score stays.

Pure functions over float32 scores [n] and boxes [n, 4]; results are positions in these arrays.

NNAPI: GenerateProposals.cpp. Order matters on ties: of equal scores, that wins whose box comes first
in a list in which picks are swapped to the front and dropped boxes are replaced from the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnburst.executor.reference.families.box_geometry import Float32, overlap

Positions = npt.NDArray[np.intp]
#: Factor of the scores of boxes that overlap by so much with a picked one.
Decay = Callable[[Float32], Float32]
#: Gets the overlaps with a pick and the positions of the boxes; returns which boxes stay.
_Keep = Callable[[Float32, Positions], npt.NDArray[np.bool_]]


def hard_suppression(scores: Float32, boxes: Float32, threshold: float, limit: int) -> Positions:
    """Pick boxes by descending score, dropping those that overlap with a pick.

    Args:
        scores: of each box.
        boxes: [n, 4].
        threshold: least overlap (intersection over union) of boxes to drop.
        limit: most picks; negative for any number.
    """
    return _pick(scores, boxes, limit, lambda overlaps, _: ~(overlaps >= threshold))


def soft_suppression(
    scores: Float32, boxes: Float32, decay: Decay, threshold: float, limit: int
) -> Positions:
    """Pick boxes by descending score, lowering the scores of those that overlap with a pick.

    Args:
        scores: of each box; changed in place.
        boxes: [n, 4].
        decay: factor of the scores, by overlap.
        threshold: boxes whose score falls below it are dropped.
        limit: most picks; negative for any number.
    """

    def keep(overlaps: Float32, at: Positions) -> npt.NDArray[np.bool_]:
        scores[at] *= decay(overlaps)
        return ~(scores[at] < threshold)

    return _pick(scores, boxes, limit, keep)


def best_first(scores: Float32) -> Positions:
    """Positions by descending score; equal scores stay in order (NNAPI leaves it open)."""
    return np.argsort(-scores, kind="stable")


def _pick(scores: Float32, boxes: Float32, limit: int, keep: _Keep) -> Positions:
    order = np.arange(len(scores))
    end = len(order)
    picks = 0
    while picks < end and picks != limit:
        best = picks + int(np.argmax(scores[order[picks:end]]))
        order[[picks, best]] = order[[best, picks]]
        rest = order[picks + 1 : end]
        stays = keep(overlap(boxes[rest], boxes[order[picks]]), rest)
        picks += 1
        end = picks + _compact(rest, stays)
    return order[:picks]


def _compact(rest: Positions, stays: npt.NDArray[np.bool_]) -> int:
    """Move what stays to the front, gaps filled from the end; returns how many they are."""
    count = int(np.count_nonzero(stays))
    gaps = np.flatnonzero(~stays[:count])
    spare = count + np.flatnonzero(stays[count:])
    rest[gaps] = rest[spare[::-1]]
    return count
