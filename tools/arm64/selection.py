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
    "executor/litert/test_float32.py",
    "executor/litert/test_lowering.py",
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
        "driver/weights/test_weights_server.py::"
        "test_taken_over_worker_reads_and_publishes_nothing_by_another_message[two]",
    ),
    "limits of memory are taken and not held": (
        "driver/test_quotas.py::test_memory_beyond_the_quota_is_a_memory_error",
        "driver/test_quotas.py::test_worker_is_limited",
        "driver/test_quotas.py::test_buffer_larger_than_the_quota_is_refused",
        "driver/test_spare_worker.py::test_spare_is_within_limits_and_sandbox_before_it_has_a_client",
    ),
    "there is no seccomp": (
        "driver/test_sandbox.py::test_a_worker_can_neither_gain_privileges_nor_call_all_of_the_kernel",
    ),
    "there is no SO_PEEK_OFF": (
        "driver/test_fences.py::"
        "test_fence_that_is_readable_without_a_status_is_an_error_and_costs_no_time[peeking_elsewhere]",
    ),
    "it has a thread of its own beside the one that a test counts": (
        "driver/test_supervisor_threads.py::"
        "test_second_thread_is_named_or_let_be_on_an_emulator[1-listens at]",
    ),
    "its own memory counts, tens of MiB beside what is measured": (
        "client/test_in_place.py::test_aligned_tensors_in_a_pool_are_copied_nowhere[reference]",
        "client/test_in_place.py::test_aligned_tensors_in_a_pool_are_copied_nowhere[litert]",
        "client/test_in_place.py::test_the_note_of_used_pages_shows_a_copy_where_there_is_one",
    ),
}
