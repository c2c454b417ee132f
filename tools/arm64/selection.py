"""Which tests run on the emulator, and what it cannot do."""

from __future__ import annotations

from typing import Final

SUITES: Final = (
    "hal",
    "serialize",
    "fmq",
    "control",
    "client",
    "driver",
    "executor/test_evaluator.py",
    "executor/test_bound_kernels.py",
    "executor/test_arena.py",
)

#: Tests by what keeps them from passing.
CANNOT: Final[dict[str, tuple[str, ...]]] = {
    "MADV_DONTFORK is ignored": (
        "fmq/test_edges.py::test_forked_child_is_refused_and_unmaps_nothing_of_its_own",
        "fmq/test_shared_memory.py::test_mapping_is_not_inherited_by_fork",
    ),
    "a message's descriptors beyond the room for them stay open, and nothing reports them": (
        "control/test_channel.py::test_surplus_descriptors_beyond_the_buffer_are_refused_10000_times_without_a_leak",
        "control/test_channel.py::test_253_descriptors_are_refused_without_a_leak",
    ),
}
