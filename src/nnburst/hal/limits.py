"""Defines all limits of the HAL and of this implementation.

Every size that a peer sends is compared with a limit from here before memory is allocated for it.
"""

from __future__ import annotations

from typing import Final

UINT16_MAX: Final = 2**16 - 1
UINT32_MAX: Final = 2**32 - 1
UINT64_MAX: Final = 2**64 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

#: NNAPI: Constant:BYTE_SIZE_OF_CACHE_TOKEN.
BYTE_SIZE_OF_CACHE_TOKEN: Final = 32
#: NNAPI: Constant:MAX_NUMBER_OF_CACHE_FILES, per kind of cache.
MAX_NUMBER_OF_CACHE_FILES: Final = 32
#: NNAPI: OperandTypeRange:BASE_MAX, the same as in OperationTypeRange; larger codes belong to extensions.
OPERAND_TYPE_BASE_MAX: Final = 0xFFFF
#: NNAPI: ControlFlow.h; a WHILE that takes longer ends as MISSED_DEADLINE_TRANSIENT.
DEFAULT_LOOP_TIMEOUT_NS: Final = 2_000_000_000
MAX_LOOP_TIMEOUT_NS: Final = 15_000_000_000
#: NNAPI: kExecutionBurstChannelLength; elements in each ring of a burst.
BURST_CHANNEL_LENGTH: Final = 1024
#: A timing that was not measured (microseconds on the wire).
NO_TIMING: Final = UINT64_MAX
#: Largest rank this implementation computes with; numpy's own limit is higher.
MAX_RANK: Final = 16
#: Most elements that a driver accepts in a ring of a burst.
MAX_BURST_CHANNEL_LENGTH: Final = 65536
