"""The C tests under sanitizers, in short form; `make asan` and `make tsan` run the long ones."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept_builds import ROOT, kept_folder

SCRIPT = ROOT / "csrc" / "tests" / "run.sh"

pytestmark = pytest.mark.skipif(
    not SCRIPT.exists() or shutil.which("gcc") is None,
    reason="needs gcc and the C sources beside the tests",
)


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Compile what the programs share once for each sanitizer, and again only if a file has changed."""
    folders = [SCRIPT.parents[1], *(ROOT / "src" / "nnburst").glob("*/include")]
    files = (path for folder in folders for path in folder.rglob("*.*"))
    kept = kept_folder("c_tests", (path for path in files if path.suffix in (".c", ".h", ".sh")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OBJECTS", str(kept))
        patch.setenv("TRAPS", "1")
        yield


def run(*words: object, script: Path = SCRIPT) -> str:
    """The output of a C test, which must succeed without a report of a sanitizer."""
    command = [str(word) for word in (script, *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "runtime error" not in output
    assert "Sanitizer" not in output
    return done.stdout


@pytest.mark.campaign
def test_hostile_counters_are_refused_without_touching_a_byte_beyond() -> None:
    assert "300000 hostile counter pairs" in run("address", "hostile_counters", 300_000)


@pytest.mark.campaign
def test_threads_share_a_ring_without_a_race() -> None:
    assert "none torn or lost" in run("thread", "ring_stress", 20_000)


@pytest.mark.every_day("address-1000")
@pytest.mark.parametrize("units", [1_000, 10_000])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_ends_of_a_queue_pass_whole_units_in_every_way(sanitizer: str, units: int) -> None:
    assert "none torn or lost" in run(sanitizer, "queue_stress", units)


@pytest.mark.every_day("address")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_each_of_several_readers_is_woken_for_every_unit(sanitizer: str) -> None:
    assert "none missed" in run(sanitizer, "queue_stress", 2_000, "broadcast")


@pytest.mark.every_day("address-100")
@pytest.mark.parametrize("units", [100, 500])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_ends_of_a_queue_survive_a_peer_that_changes_every_shared_byte(
    sanitizer: str, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSAN_OPTIONS", f"suppressions={SCRIPT.parent / 'hostile_copies.txt'}")
    assert "nothing but errors" in run(sanitizer, "queue_stress", units, "hostile")


@pytest.mark.campaign
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_client_and_driver_get_the_results_asked_for_whatever_happens_at_once(
    sanitizer: str,
) -> None:
    assert "each the one asked for" in run(sanitizer, "burst_stress", 4_000)


@pytest.mark.campaign
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_steps_of_a_plan_begin_in_order_whatever_happens_at_once(sanitizer: str) -> None:
    assert "each step behind the one before" in run(sanitizer, "steps_stress", 1_000)


@pytest.mark.campaign
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_byte_for_who_waits_in_an_event_loop_is_never_lost(sanitizer: str) -> None:
    assert "waits for a byte, none lost" in run(sanitizer, "wakeup_stress", 4_000)


@pytest.mark.every_day("address")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_each_of_many_callers_gets_its_own_answer_whichever_reads_it(sanitizer: str) -> None:
    assert "each got its own answer" in run(sanitizer, "reply_stress", 500)


@pytest.mark.campaign
@pytest.mark.parametrize("sanitizer", ["none", "thread"])
def test_flag_that_never_rests_keeps_no_wait_beyond_its_deadline(sanitizer: str) -> None:
    assert "ended at their deadlines" in run(sanitizer, "restless_flag", 60)


def test_peer_that_flips_bits_of_all_it_reaches_gets_results_and_errors_and_nothing_else() -> None:
    assert "6000 executions" in run("address", "hostile_peer", 6_000)


@pytest.mark.campaign
def test_executor_that_answers_at_random_gets_no_answer_through_that_cannot_be() -> None:
    assert "6000 answers" in run("address", "hostile_executor", 6_000)


def test_death_at_any_trap_point_leaves_whole_packets_and_an_ending() -> None:
    assert "48 deaths at 6 points" in run("address", "death_at_traps", 1)


def test_stop_between_the_last_look_and_the_sleep_is_not_lost_to_the_other_side() -> None:
    assert "the stop was seen" in run("address", "attention_at_trap")


@pytest.mark.campaign
def test_fuzz_targets_hold_on_their_corpus_and_on_random_inputs() -> None:
    script = SCRIPT.parent / "fuzz" / "run.sh"
    output = run("replay", 300, script=script)
    assert [line.split()[0] for line in output.splitlines()] == [
        "ring",
        "packet",
        "burst",
        "messages",
    ]
    assert output.count("300 random inputs") == 4


def test_overdue_results_leave_the_wanted_one_what_is_left_of_the_deadline() -> None:
    assert "the time was the time for all" in run("address", "late_results")


def test_element_that_changes_after_the_look_at_its_size_is_not_copied_again() -> None:
    assert "4 changes changed nothing" in run("address", "changed_after_look")
