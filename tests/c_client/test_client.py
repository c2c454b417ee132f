"""The client in C, called by cffi: services, networks, requests, states, failures, event loops."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c_client.interface import (
    PATIENCE,
    SECOND,
    Failed,
    bound,
    check,
    connected,
    created,
    ffi,
    input_of,
    library,
    made,
    open_burst,
    opened,
    operand,
    output_of,
    run,
    text_of,
)
from client.service import Service
from early_ends import ending_early
from nnburst.fmq.shared_memory import SharedMemory
from serving.networks import DIE, SLEEP
from waiting import wait_for

NO_ERROR, INCOMPLETE, UNEXPECTED_NULL, BAD_DATA, OP_FAILED, BAD_STATE = 0, 2, 3, 4, 5, 6
UNAVAILABLE_DEVICE, MISSED_DEADLINE, DEAD_OBJECT, BUSY = 9, 10, 14, 100


def test_service_lists_its_networks_by_name_and_version(device: Any) -> None:
    c = library()
    models = made(c.nnburst_list_models, device, PATIENCE)
    names = [
        (text_of(c.nnburst_models_name(models, i)), c.nnburst_models_version(models, i))
        for i in range(c.nnburst_models_count(models))
    ]
    c.nnburst_free_models(models)
    assert names == [("accumulate", 1), ("add", 1), ("add", 3), ("both", 1), ("quantised", 1)]


@pytest.mark.parametrize("ends", [2, 3])
def test_client_comes_again_when_its_driver_ends_before_the_first_answer(
    ends: int, tmp_path: Path
) -> None:
    relay = tmp_path / "relay"
    with (
        Service("add=serving.networks:add") as service,
        ending_early(relay, ends, service.address) as thread,
    ):
        if ends == 2:
            library().nnburst_close_device(connected(str(relay)))
        else:
            with pytest.raises(Failed, match="before its first answer") as failed:
                connected(str(relay))
            assert failed.value.code == UNAVAILABLE_DEVICE
        thread.join(10)
        assert not thread.is_alive(), "it has not come again"


def test_network_opens_in_its_newest_version_unless_another_one_is_named(device: Any) -> None:
    c = library()
    assert c.nnburst_model_version(opened(device, "add")) == 3
    first = opened(device, "add", 1)
    assert (c.nnburst_model_version(first), text_of(c.nnburst_model_name(first))) == (1, "add")


def test_unknown_name_or_version_is_refused_with_those_that_are_served(device: Any) -> None:
    for name, version in (("none", 0), ("add", 2)):
        with pytest.raises(Failed) as failed:
            opened(device, name, version)
        assert failed.value.code == BAD_DATA
        assert (
            "is not served, expected one of: accumulate@1, add@1, add@3, both@1"
            in failed.value.text
        )


def test_inputs_and_outputs_are_described_as_the_network_has_them(device: Any) -> None:
    c = library()
    model = opened(device, "quantised")
    found = operand(c.nnburst_input, model, 0)
    assert (text_of(found.name), found.rank, found.dimensions[0], found.size) == ("", 1, 4, 4)
    assert (found.element, found.element_size, found.type) == (c.NNBURST_UINT8, 1, 5)
    assert (found.scale, found.zero_point) == (0.5, 100)
    both = opened(device, "both")
    assert [text_of(operand(c.nnburst_output, both, i).name) for i in (0, 1)] == [
        "sum",
        "difference",
    ]
    assert operand(c.nnburst_output, both, 0).size == 0, "its shape is open"
    with pytest.raises(Failed, match="the model has 2 outputs"):
        operand(c.nnburst_output, both, 2)


def test_struct_of_another_header_is_filled_as_far_as_it_goes(device: Any) -> None:
    model = opened(device, "quantised")
    large = ffi.new("char[]", b"\x55" * 200)
    check(library().nnburst_input(model, 0, ffi.cast("nnburst_operand *", large), 200))
    whole = ffi.sizeof("nnburst_operand")
    assert set(ffi.buffer(large)[whole:200]) == {0}
    small = ffi.new("char[]", b"\x55" * 200)
    check(library().nnburst_input(model, 0, ffi.cast("nnburst_operand *", small), 8))
    assert set(ffi.buffer(small)[8:200]) == {0x55}


def test_request_with_memory_of_its_own_computes(device: Any) -> None:
    burst = open_burst(opened(device, "add", 1))
    request = bound(burst)
    for step in range(3):
        input_of(request, 0, 6)[:] = np.arange(6) + step
        input_of(request, 1, 6)[:] = 100
        assert run(request) == NO_ERROR
        assert output_of(request, 0, 6).tolist() == [100 + step + i for i in range(6)]


def test_request_uses_memory_in_place_and_a_foreign_memfd_likewise(device: Any) -> None:
    c = library()
    ours = made(c.nnburst_create_memory, 256)
    with SharedMemory.create(4096) as foreign:
        view = foreign.map(writable=True)
        theirs = made(c.nnburst_memory_from_fd, foreign.fd)
    request = created(open_burst(opened(device, "add", 1)))
    check(c.nnburst_set_input(request, 0, ours, 64, 24))
    check(c.nnburst_set_input(request, 1, theirs, 0, 24))
    check(c.nnburst_set_output(request, 0, theirs, 1024, 24))
    check(c.nnburst_bind(request))
    c.nnburst_free_memory(ours)
    c.nnburst_free_memory(theirs)
    input_of(request, 0, 6)[:] = 1
    view[:24].view("<f4")[:] = np.arange(6)
    assert run(request) == NO_ERROR
    assert view[1024:1048].view("<f4").tolist() == [1, 2, 3, 4, 5, 6]


def test_memory_that_is_not_sealed_is_refused() -> None:
    fd = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(Failed, match="seals SHRINK, GROW and SEAL"):
        made(library().nnburst_memory_from_fd, fd)
    os.close(fd)


def test_shapes_that_a_network_leaves_open_come_with_the_request(device: Any) -> None:
    c = library()
    request = created(open_burst(opened(device, "both")))
    with pytest.raises(Failed, match="the network leaves its shape open"):
        check(c.nnburst_bind(request))
    memory = made(c.nnburst_create_memory, 4096)
    for i in (0, 1):
        check(c.nnburst_set_input_dimensions(request, i, ffi.new("uint32_t[]", [5]), 1))
        check(c.nnburst_set_output(request, i, memory, 1024 * i, 1024))
    check(c.nnburst_bind(request))
    c.nnburst_free_memory(memory)
    input_of(request, 0, 5, "<i4")[:] = [1, 2, 3, 4, 5]
    input_of(request, 1, 5, "<i4")[:] = 10
    assert run(request) == NO_ERROR
    assert output_of(request, 1, 5, "<i4").tolist() == [-9, -8, -7, -6, -5]
    extents, rank = ffi.new("uint32_t[4]"), ffi.new("uint32_t *", 4)
    check(c.nnburst_output_dimensions(request, 0, extents, rank))
    assert (rank[0], extents[0]) == (1, 5)


def test_result_may_have_more_elements_than_the_channel_of_requests() -> None:
    with Service("absolutes=serving.networks:absolutes") as service:
        c, device = library(), connected(service.address)
        request = created(open_burst(opened(device, "absolutes"), channel_length=16))
        memory = made(c.nnburst_create_memory, 4096)
        extents = ffi.new("uint32_t[]", [3, 1, 1, 1])
        check(c.nnburst_set_input_dimensions(request, 0, extents, 4))
        for i in range(4):
            check(c.nnburst_set_output(request, i, memory, 1024 * i, 1024))
        check(c.nnburst_bind(request))
        c.nnburst_free_memory(memory)
        input_of(request, 0, 3)[:] = -7
        assert run(request) == NO_ERROR
        assert [output_of(request, i, 3).tolist() for i in range(4)] == [[7] * 3] * 4
        c.nnburst_close_device(device)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c, r, m: c.nnburst_set_input(r, 0, m, 0, 20), "20 bytes are set, expected 24"),
        (lambda c, r, m: c.nnburst_set_input(r, 0, m, 250, 24), "do not lie in a memory of 256"),
        (lambda c, r, m: c.nnburst_set_output(r, 1, m, 0, 24), "the model has no output 1"),
        (lambda c, r, _: c.nnburst_set_input(r, 0, ffi.NULL, 0, 24), "memory: NULL"),
        (
            lambda c, r, _: c.nnburst_set_input_dimensions(r, 0, ffi.new("uint32_t[]", [3, 2]), 2),
            "they do not fit those of input 0",
        ),
    ],
)
def test_argument_that_does_not_fit_is_refused_with_the_rule(
    device: Any, change: Any, reason: str
) -> None:
    c = library()
    request = created(open_burst(opened(device, "add", 1)))
    memory = made(c.nnburst_create_memory, 256)
    with pytest.raises(Failed) as failed:
        check(change(c, request, memory))
        check(c.nnburst_bind(request))
    c.nnburst_free_memory(memory)
    assert reason in failed.value.text


def test_refused_argument_of_a_network_with_states_is_named_by_the_number_of_the_program() -> None:
    c = library()
    with Service("behind_a_state=serving.networks:behind_a_state") as service:
        device = connected(service.address)
        request = created(open_burst(opened(device, "behind_a_state")))
        with pytest.raises(Failed) as failed:
            check(c.nnburst_bind(request))
        assert "input 0: the network leaves its shape open" in failed.value.text
        check(c.nnburst_set_input_dimensions(request, 0, ffi.new("uint32_t[]", [3]), 1))
        with pytest.raises(Failed) as failed:
            check(c.nnburst_bind(request))
        assert "output 0: the network leaves its shape open" in failed.value.text
        memory = made(c.nnburst_create_memory, 64)
        check(c.nnburst_set_output(request, 0, memory, 0, 64))
        check(c.nnburst_bind(request))
        input_of(request, 0, 3)[:] = 7
        assert run(request) == NO_ERROR
        assert output_of(request, 0, 3).tolist() == [14] * 3
        c.nnburst_free_memory(memory)
        c.nnburst_close_device(device)


def test_request_can_be_bound_again_after_what_was_missing_is_there(device: Any) -> None:
    c = library()
    request = created(open_burst(opened(device, "add", 1)))
    memory = made(c.nnburst_create_memory, 256)
    check(c.nnburst_set_input(request, 0, memory, 0, 20))
    assert c.nnburst_bind(request) == BAD_DATA
    check(c.nnburst_set_input(request, 0, memory, 0, 24))
    check(c.nnburst_bind(request))
    assert c.nnburst_bind(request) == BAD_STATE
    c.nnburst_free_memory(memory)
    assert run(request) == NO_ERROR


def test_states_are_carried_and_reset(device: Any) -> None:
    c = library()
    model = opened(device, "accumulate")
    assert (c.nnburst_input_count(model), c.nnburst_output_count(model)) == (1, 1)
    assert c.nnburst_state_count(model) == 1
    request = bound(open_burst(model))
    input_of(request, 0, 2)[:] = [1, 2]
    sums = []
    for _ in range(3):
        assert run(request) == NO_ERROR
        sums.append(output_of(request, 0, 2).tolist())
    assert sums == [[11, 22], [12, 24], [13, 26]]
    check(c.nnburst_reset_states(request))
    assert run(request) == NO_ERROR
    assert output_of(request, 0, 2).tolist() == [11, 22]


def test_measured_run_has_its_times_and_another_one_has_none(device: Any) -> None:
    c = library()
    burst = open_burst(opened(device, "add", 1))
    request = created(burst)
    check(c.nnburst_set_measure(request, 1))
    check(c.nnburst_bind(request))
    times = ffi.new("uint64_t[2]")
    assert c.nnburst_timing(request, times, times + 1) == BAD_STATE
    assert run(request) == NO_ERROR
    check(c.nnburst_timing(request, times, times + 1))
    assert times[0] <= times[1] < 60_000_000
    plain = bound(burst)
    assert run(plain) == NO_ERROR
    assert c.nnburst_timing(plain, times, times + 1) == BAD_STATE


def test_run_ends_at_its_timeout_and_the_next_one_is_right(device: Any) -> None:
    request = bound(open_burst(opened(device, "add", 1)))
    input_of(request, 0, 6)[:] = SLEEP
    assert run(request, SECOND // 20) == MISSED_DEADLINE
    input_of(request, 0, 6)[:] = 7
    assert run(request) == NO_ERROR
    assert output_of(request, 0, 6).tolist() == [7] * 6


def test_second_thread_is_refused_while_one_is_inside(device: Any) -> None:
    request = bound(open_burst(opened(device, "add", 1)))
    assert run(request) == NO_ERROR
    input_of(request, 0, 6)[:] = SLEEP
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(request)))
    thread.start()
    while (code := run(request, SECOND // 100)) != BUSY and thread.is_alive():
        assert code in (NO_ERROR, MISSED_DEADLINE, BUSY)
    thread.join()
    assert code == BUSY or codes == [BUSY]


def test_results_are_collected_in_the_order_of_submission(device: Any) -> None:
    c = library()
    burst = open_burst(opened(device, "add", 1), max_in_flight=2)
    first, second, third = (bound(burst) for _ in range(3))
    for value, request in enumerate((first, second, third), 1):
        input_of(request, 0, 6)[:] = value
    check(c.nnburst_submit(first))
    check(c.nnburst_submit(second))
    assert c.nnburst_submit(first) == BUSY, "it is out"
    assert c.nnburst_submit(third) == BUSY, "two are out"
    assert run(third, SECOND) == BUSY
    found = ffi.new("nnburst_request **")
    for expected, value in ((first, 1), (second, 2)):
        assert c.nnburst_collect(burst, PATIENCE, found) == NO_ERROR
        assert found[0] == expected
        assert output_of(found[0], 0, 6).tolist() == [value] * 6
    assert c.nnburst_collect(burst, PATIENCE, found) == BAD_STATE


def test_descriptor_shows_a_result_to_an_event_loop(device: Any) -> None:
    c = library()
    burst = open_burst(opened(device, "add", 1))
    request = bound(burst)
    assert c.nnburst_poll(burst) == INCOMPLETE
    for value in (SLEEP, 3.0, 4.0):
        input_of(request, 0, 6)[:] = value
        check(c.nnburst_submit(request))
        while (code := c.nnburst_poll(burst)) == INCOMPLETE:
            ready, _, _ = select.select([c.nnburst_burst_fd(burst)], [], [], 60)
            assert ready
        assert code == NO_ERROR
        found = ffi.new("nnburst_request **")
        assert c.nnburst_collect(burst, 0, found) == NO_ERROR
        assert output_of(request, 0, 6).tolist() == [value] * 6


def test_request_that_is_freed_while_it_is_out_leaves_the_burst_usable(device: Any) -> None:
    c = library()
    burst = open_burst(opened(device, "add", 1), max_in_flight=2)
    gone, stays = bound(burst), bound(burst)
    input_of(stays, 0, 6)[:] = 5
    check(c.nnburst_submit(gone))
    check(c.nnburst_submit(stays))
    c.nnburst_free_request(gone)
    found = ffi.new("nnburst_request **")
    assert c.nnburst_collect(burst, PATIENCE, found) == NO_ERROR
    assert found[0] == stays
    assert output_of(stays, 0, 6).tolist() == [5] * 6
    assert run(stays) == NO_ERROR


def test_next_request_runs_after_one_that_was_freed_while_it_was_out(device: Any) -> None:
    c = library()
    model = opened(device, "add", 1)
    for again in (run, c.nnburst_submit):
        burst = open_burst(model)
        gone, stays = bound(burst), bound(burst)
        assert run(gone) == run(stays) == NO_ERROR
        check(c.nnburst_submit(gone))
        c.nnburst_free_request(gone)
        wait_for(lambda again=again, stays=stays: again(stays) == NO_ERROR)
    found = ffi.new("nnburst_request **")
    burst = open_burst(model, max_in_flight=2)
    stays, gone = bound(burst), bound(burst)
    check(c.nnburst_submit(stays))
    check(c.nnburst_submit(gone))
    c.nnburst_free_request(gone)
    assert c.nnburst_collect(burst, PATIENCE, found) == NO_ERROR
    assert run(stays) == NO_ERROR


def test_request_is_freed_soon_although_the_driver_hangs(device: Any) -> None:
    c = library()
    request = bound(open_burst(opened(device, "add", 1)))
    assert run(request) == NO_ERROR
    driver = c.nnburst_device_pid(device)
    os.kill(driver, signal.SIGSTOP)
    try:
        wait_for(lambda: run(request, SECOND // 100) == MISSED_DEADLINE)
        begin = time.monotonic()
        c.nnburst_free_request(request)
        assert time.monotonic() - begin < 20
    finally:
        os.kill(driver, signal.SIGCONT)


def test_model_with_bursts_and_a_request_with_memories_are_freed_soon_while_the_driver_hangs(
    service: Service,
) -> None:
    c = library()
    device = connected(service.address)
    model = opened(device, "add", 1)
    bursts = [open_burst(model) for _ in range(5)]
    request = created(bursts[0])
    for i, place in enumerate((c.nnburst_set_input, c.nnburst_set_input, c.nnburst_set_output)):
        memory = made(c.nnburst_create_memory, 24)
        check(place(request, i % 2, memory, 0, 24))
        c.nnburst_free_memory(memory)
    check(c.nnburst_bind(request))
    driver = c.nnburst_device_pid(device)
    os.kill(driver, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        c.nnburst_free_request(request)
        between = time.monotonic()
        c.nnburst_close_model(model)
        took = between - begin, time.monotonic() - between
    finally:
        os.kill(driver, signal.SIGCONT)
    assert max(took) < 4, f"one wait of 2 s each: {took}"
    again = bound(open_burst(opened(device, "add", 1)))
    assert run(again) == NO_ERROR
    c.nnburst_close_device(device)


def test_slots_of_freed_requests_are_used_again(device: Any) -> None:
    c = library()
    burst = open_burst(opened(device, "add", 1))
    for value in range(70):
        request = bound(burst)
        input_of(request, 0, 6)[:] = value
        assert run(request) == NO_ERROR
        assert output_of(request, 0, 6).tolist() == [value] * 6
        c.nnburst_free_request(request)


def test_death_of_the_driver_is_a_code_and_both_descriptors_show_it(service: Service) -> None:
    c = library()
    device = connected(service.address)
    burst = open_burst(opened(device, "add", 1))
    request = bound(burst)
    input_of(request, 0, 6)[:] = DIE
    assert run(request) == DEAD_OBJECT
    assert run(request) == DEAD_OBJECT
    assert c.nnburst_is_alive(device) == 0
    watched = [c.nnburst_device_fd(device), c.nnburst_burst_fd(burst)]
    for fd in watched:
        assert select.select([fd], [], [], 60)[0]
    assert c.nnburst_poll(burst) == DEAD_OBJECT
    with pytest.raises(Failed, match="has died or has ended the connection"):
        opened(device, "add")
    c.nnburst_close_device(device)


def test_reconnected_device_goes_on_with_every_pointer_and_state_as_it_was(
    service: Service,
) -> None:
    c = library()
    device = connected(service.address)
    model = opened(device, "accumulate")
    request = bound(open_burst(model))
    other = bound(open_burst(opened(device, "add", 1)))
    input_of(request, 0, 2)[:] = [1, 2]
    assert run(request) == NO_ERROR
    os.kill(c.nnburst_device_pid(device), signal.SIGKILL)
    assert run(request) == DEAD_OBJECT
    check(c.nnburst_reconnect(device, PATIENCE))
    assert c.nnburst_is_alive(device) == 1
    assert run(request) == NO_ERROR
    assert output_of(request, 0, 2).tolist() == [12, 24], "the state of before"
    input_of(other, 0, 6)[:] = 2
    assert run(other) == NO_ERROR
    assert output_of(other, 0, 6).tolist() == [2] * 6
    c.nnburst_close_device(device)


def test_shapes_of_the_latest_execution_outlive_a_reconnection(service: Service) -> None:
    c = library()
    device = connected(service.address)
    request = created(open_burst(opened(device, "both")))
    memory = made(c.nnburst_create_memory, 4096)
    for i in (0, 1):
        check(c.nnburst_set_input_dimensions(request, i, ffi.new("uint32_t[]", [5]), 1))
        check(c.nnburst_set_output(request, i, memory, 1024 * i, 1024))
    check(c.nnburst_bind(request))
    c.nnburst_free_memory(memory)
    extents, rank = ffi.new("uint32_t[4]"), ffi.new("uint32_t *", 4)
    for _ in range(2):
        assert run(request) == NO_ERROR
        os.kill(c.nnburst_device_pid(device), signal.SIGKILL)
        check(c.nnburst_reconnect(device, PATIENCE))
        check(c.nnburst_output_dimensions(request, 0, extents, rank))
        assert (rank[0], extents[0]) == (1, 5)
    c.nnburst_close_device(device)


def test_reconnection_waits_for_the_service_and_may_be_tried_again() -> None:
    c = library()
    with Service("add=serving.networks:add") as service:
        device = connected(service.address)
        request = bound(open_burst(opened(device, "add")))
        assert run(request) == NO_ERROR
        service.kill()
        assert run(request) == DEAD_OBJECT
        assert c.nnburst_reconnect(device, SECOND // 50) == UNAVAILABLE_DEVICE
        assert run(request) == DEAD_OBJECT
        service.start()
        check(c.nnburst_reconnect(device, PATIENCE))
        assert run(request) == NO_ERROR
        c.nnburst_close_device(device)


def test_network_that_looks_different_after_a_restart_is_refused() -> None:
    c = library()
    with Service("net=serving.networks:add") as service:
        device = connected(service.address)
        request = bound(open_burst(opened(device, "net")))
        service.kill()
        service.start("net=serving.networks:quantised")
        with pytest.raises(Failed, match="net version 1 has other inputs or outputs now"):
            check(c.nnburst_reconnect(device, PATIENCE))
        assert run(request) == DEAD_OBJECT
        c.nnburst_close_device(device)


def test_service_that_is_not_there_or_has_no_such_name_is_unavailable(tmp_path: Any) -> None:
    with pytest.raises(Failed, match="no driver serves") as failed:
        connected(str(tmp_path / "nobody"), SECOND)
    assert failed.value.code == UNAVAILABLE_DEVICE
    with pytest.raises(Failed, match="expected 1 to 64 letters"):
        connected("-x", SECOND)
    with pytest.raises(Failed, match="name_or_path: NULL"):
        made(library().nnburst_connect, ffi.NULL, 0, SECOND)


def test_network_that_no_executor_supports_is_refused_with_the_reason_and_others_are_served() -> (
    None
):
    with Service(
        "add=serving.networks:add", "odd=serving.networks:both", executor="litert"
    ) as service:
        device = connected(service.address)
        assert run(bound(open_burst(opened(device, "add")))) == NO_ERROR
        library().nnburst_close_device(device)


def test_clients_are_served_the_same_network_at_once(service: Service) -> None:
    devices = [connected(service.address) for _ in range(3)]
    requests = [bound(open_burst(opened(device, "add", 1))) for device in devices]
    for value, request in enumerate(requests):
        input_of(request, 0, 6)[:] = value
    assert [run(request) for request in requests] == [NO_ERROR] * 3
    for value, request in enumerate(requests):
        assert output_of(request, 0, 6).tolist() == [value] * 6
    for device in devices:
        library().nnburst_close_device(device)


def test_null_is_refused_and_never_followed() -> None:
    c = library()
    for close in (
        c.nnburst_close_device, c.nnburst_close_model, c.nnburst_close_burst, c.nnburst_free_request,
        c.nnburst_free_memory, c.nnburst_free_models,
    ):  # fmt: skip
        close(ffi.NULL)
    assert c.nnburst_run(ffi.NULL, 0) == UNEXPECTED_NULL
    assert c.nnburst_bind(ffi.NULL) == UNEXPECTED_NULL
    assert c.nnburst_poll(ffi.NULL) == UNEXPECTED_NULL
    assert c.nnburst_reconnect(ffi.NULL, 0) == UNEXPECTED_NULL
    assert c.nnburst_input_data(ffi.NULL, 0) == ffi.NULL
    assert c.nnburst_input_count(ffi.NULL) == 0


def test_every_code_has_its_name() -> None:
    c = library()
    assert c.nnburst_abi_version() == 1
    assert text_of(c.nnburst_result_name(c.NNBURST_DEAD_OBJECT)) == "DEAD_OBJECT"
    assert text_of(c.nnburst_result_name(12345)) == "unknown"
