"""Tables of performance per operand type.

NNAPI: LegacyUtils.h (R: Utils.h) nonExtensionOperandPerformance, update, lookup.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from nnburst.hal.capabilities import OperandPerformance, PerformanceInfo
from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.operand_types import INTRODUCED

Table = tuple[OperandPerformance, ...]

FLT_MAX: Final = (2 - 2.0**-23) * 2.0**127
#: Performance of what a device does not list.
UNLISTED: Final = PerformanceInfo(FLT_MAX, FLT_MAX)

_by_type = attrgetter("type")


def non_extension_operand_performance(
    info: PerformanceInfo, level: FeatureLevel = FeatureLevel.V1_3
) -> Table:
    """The same performance for every core type of that version but SUBGRAPH, ascending by type."""
    return performance_of((t for t in OperandType if INTRODUCED[t] <= level), info)


def performance_of(types: Iterable[OperandType], info: PerformanceInfo) -> Table:
    """The same performance for these types but SUBGRAPH, ascending by type."""
    listed = sorted(t for t in types if t != OperandType.SUBGRAPH)
    return tuple(OperandPerformance(kind, info) for kind in listed)


def update(table: Sequence[OperandPerformance], kind: OperandType, info: PerformanceInfo) -> Table:
    """The table with another entry for `kind`.

    Raises:
        InvalidArgument: the table has none to replace (DEVIATES: the original aborts).
    """
    at = bisect_left(table, kind, key=_by_type)
    if at == len(table) or table[at].type != kind:
        raise InvalidArgument(f"kind: the table has no {kind.name}")
    return (*table[:at], OperandPerformance(kind, info), *table[at + 1 :])


def lookup(table: Sequence[OperandPerformance], kind: OperandType) -> PerformanceInfo:
    """The entry for `kind` of an ascending table, or UNLISTED.

    DEVIATES: R returns the next type's entry if `kind` has none.
    """
    at = bisect_left(table, kind, key=_by_type)
    return table[at].info if at < len(table) and table[at].type == kind else UNLISTED
