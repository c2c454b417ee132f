"""Compilation caching across starts of a program: each device here is a driver process of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnburst
from nnburst import (
    Device,
    ExecutionPreference,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
    Priority,
)
from nnburst.client.compilation_cache import cache_token, model_token
from nnburst.hal import CacheFiles, environment
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    DeadObject,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
)
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.types import NO_CACHE_TOKEN
from shared_drivers import connect_to
from waiting import wait_for

STRICT = environment.STRICT_TIMING.read()
needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)
EXECUTORS = [
    pytest.param("null", id="null"),
    pytest.param("reference", id="reference"),
    pytest.param("litert", id="litert", marks=needs_litert),
]
#: For what starts many drivers: each executor in a campaign, one of them every day.
ONE_EVERY_DAY = [
    pytest.param("null", id="null", marks=pytest.mark.campaign),
    pytest.param("reference", id="reference"),
    pytest.param("litert", id="litert", marks=[pytest.mark.campaign, needs_litert]),
]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers of a test have a key of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def caching(tmp_path: Path) -> Iterator[Device]:
    """A driver that computes and may be killed."""
    with connect_to("reference") as launched:
        yield launched


def scaling(factor: float = 3.0) -> Model:
    """x · weights + 1."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x, y, between = (
        builder.input(kind, (64,)),
        builder.output(kind, (64,)),
        builder.temporary(kind, (64,)),
    )
    none = builder.scalar(0)
    weights, one = (
        builder.constant(kind, np.arange(64) * factor),
        builder.constant(kind, np.ones(1)),
    )
    builder.operation(OperationType.MUL, [x, weights, none], [between])
    builder.operation(OperationType.ADD, [between, one, none], [y])
    return builder.build()


X = np.linspace(-1, 1, 64, dtype=np.float32)


def start(executor: str, folder: Path, model: Any = None, **options: Any) -> tuple[bool, list[Any]]:
    """One start of a program: whether the model came from the cache, and what it computes."""
    with nnburst.launch(executor) as device:
        prepared = device.prepare(model or scaling(), cache_dir=folder, **options)
        inputs = (
            [X] if model is None else [np.zeros(i.dimensions, i.dtype) for i in prepared.inputs]
        )
        outputs = prepared.execute(inputs).outputs
        return prepared.from_cache, [output.tolist() for output in outputs]


@pytest.mark.every_day("litert")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_second_start_compiles_nothing_and_computes_the_same(
    executor: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nnburst.client.compilation_cache"):
        first = start(executor, folder)
        assert f"{executor} compiled a model for the cache in {folder}" in caplog.text
        second = start(executor, folder)
    assert f"{executor} took a model from the cache in {folder}" in caplog.text
    assert (first[0], second[0]) == (False, True)
    assert second[1] == first[1]


def test_without_a_directory_nothing_is_cached(caching: Device, folder: Path) -> None:
    assert not caching.prepare(scaling()).from_cache
    assert not folder.exists()


@pytest.mark.campaign
def test_a_model_that_brings_its_pools_is_named_by_their_content(folder: Path) -> None:
    class Carrier:
        def __init__(self, factor: float) -> None:
            from msgspec.structs import replace

            from nnburst.hal.enums import OperandLifeTime
            from nnburst.hal.model import MemoryPool

            model = scaling(factor)
            values = np.frombuffer(model.operand_values, np.uint8)
            operands = tuple(
                replace(o, lifetime=OperandLifeTime.CONSTANT_REFERENCE)
                if o.lifetime == OperandLifeTime.CONSTANT_COPY
                else o
                for o in model.main.operands
            )
            main = replace(model.main, operands=operands)
            self.model = replace(
                model, main=main, operand_values=b"", pools=(MemoryPool(values.nbytes),)
            )
            self.pools: Sequence[Any] = (values,)

    def run(factor: float) -> bool:
        with nnburst.launch("reference") as device:
            prepared = device.prepare(Carrier(factor), cache_dir=folder)
            (y,) = prepared.execute([X]).outputs
            np.testing.assert_allclose(y, X * np.arange(64) * factor + 1, rtol=1e-6)
            return prepared.from_cache

    assert [run(2.0), run(3.0), run(2.0), run(3.0)] == [False, False, True, True]


def test_whatever_makes_another_compilation_has_files_of_its_own(
    caching: Device, folder: Path
) -> None:
    ways: list[tuple[Model, dict[str, Any]]] = [
        (scaling(), {}),
        (scaling(2.0), {}),
        (scaling(), {"preference": ExecutionPreference.LOW_POWER}),
        (scaling(), {"priority": Priority.HIGH}),
        (scaling(), {"num_threads": 1}),
        (scaling(), {"token": b"u" * 32}),
    ]
    for expected in (False, True):
        for model, options in ways:
            prepared = caching.prepare(model, cache_dir=folder, **options)
            assert prepared.from_cache is expected
    assert len(list(folder.iterdir())) == 2 * len(ways)


def test_a_users_token_names_the_model_whatever_is_in_it(caching: Device, folder: Path) -> None:
    """Token collisions cannot be detected (NNAPI: the user's business)."""
    token = bytes(32)
    assert not caching.prepare(scaling(2.0), cache_dir=folder, token=token).from_cache
    prepared = caching.prepare(scaling(3.0), cache_dir=folder, token=token)
    assert prepared.from_cache
    np.testing.assert_allclose(
        prepared.execute([X]).outputs[0], X * np.arange(64) * 2 + 1, rtol=1e-6
    )


def test_files_are_named_by_letters_kind_and_number_and_are_their_owners(
    caching: Device, folder: Path
) -> None:
    caching.prepare(scaling(), cache_dir=folder)
    names = sorted(path.name for path in folder.iterdir())
    assert [name[-2:] for name in names] == ["10", "20"]
    assert len({name[:-2] for name in names}) == 1
    assert re.fullmatch("[A-P]{64}", names[0][:-2])
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.every_day("flipped-reference")
@pytest.mark.parametrize("executor", ONE_EVERY_DAY)
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        lambda content: bytes(len(content)),
    ],
    ids=["emptied", "truncated", "appended", "flipped", "zeroed"],
)
def test_damaged_files_are_compiled_and_written_anew(
    executor: str, damage: Callable[[bytes], bytes], folder: Path
) -> None:
    first = start(executor, folder)
    for path in [path for path in folder.iterdir() if path.stat().st_size]:
        good = path.read_bytes()
        path.write_bytes(damage(good))
        assert start(executor, folder) == first  # False: compiled
        assert path.read_bytes() == good
        assert start(executor, folder)[0]


@pytest.mark.campaign
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_live_driver_outlives_damage_in_every_byte_and_compiles(
    executor: str, folder: Path
) -> None:
    """Every byte of the null executor's model cache, which is the shortest, and a hundred of the others'."""
    with nnburst.launch(executor) as device:
        pid, expected = device.pid, device.prepare(scaling(), cache_dir=folder).execute([X]).outputs
        (file,) = folder.glob("*10")
        good = file.read_bytes()
        count = len(good) if executor == "null" else 100
        for at in range(0, len(good), len(good) // count):
            file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
            with device.prepare(scaling(), cache_dir=folder) as prepared:
                assert not prepared.from_cache
            assert file.read_bytes() == good
        prepared = device.prepare(scaling(), cache_dir=folder)
        assert prepared.from_cache
        assert executor == "null" or (prepared.execute([X]).outputs[0] == expected[0]).all()
        assert (device.is_alive, device.pid) == (True, pid)


@pytest.mark.campaign
def test_a_file_that_is_missing_is_written_anew(folder: Path) -> None:
    first = start("reference", folder)
    for path in folder.iterdir():
        path.unlink()
        assert start("reference", folder) == first
        assert start("reference", folder)[0]


def test_a_link_in_place_of_a_file_is_not_followed(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = start("reference", folder)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for path in folder.iterdir():
        path.unlink()
        path.symlink_to(precious)
    assert start("reference", folder) == first
    assert precious.read_text() == "precious"
    assert "cache file" in caplog.text


def test_a_directory_that_cannot_be_made_only_costs_the_caching(
    caching: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    prepared = caching.prepare(scaling(), cache_dir=tmp_path / "file" / "cache")
    assert not prepared.from_cache
    assert prepared.execute([X]).outputs
    assert "nothing is cached" in caplog.text


def test_a_key_of_the_wrong_mode_only_costs_the_caching(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert [start("reference", folder)[0] for _ in range(2)] == [False, False]


def test_a_model_that_a_driver_could_not_save_is_not_logged_as_cached(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert start("reference", folder)[0] is False
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")  # no key
    for _ in range(2):  # over the files of another key, and over what that leaves
        caplog.clear()
        with caplog.at_level(logging.INFO, "nnburst.client.compilation_cache"):
            assert start("reference", folder)[0] is False
        assert f"reference saved nothing for the cache in {folder}" in caplog.text
        assert "compiled a model" not in caplog.text


def test_a_model_that_is_wrong_is_wrong_with_a_cache_too(caching: Device, folder: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.FULLY_CONNECTED, [x], [y])
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            caching.prepare(builder.build(), cache_dir=folder)


def test_what_is_not_a_model_is_named(caching: Device, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="model: of type int"):
        caching.prepare(7, cache_dir=folder)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_users_token_has_32_bytes(length: int, caching: Device, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="S11"):
        caching.prepare(scaling(), cache_dir=folder, token=bytes(length))


def test_a_dead_driver_is_not_mistaken_for_a_bad_cache(caching: Device, folder: Path) -> None:
    caching.prepare(scaling(), cache_dir=folder)
    os.kill(caching.pid, 9)
    with pytest.raises(DeadObject):
        caching.prepare(scaling(), cache_dir=folder)


# What a framework does by itself: descriptors and tokens.


class Opened:
    """Cache files in a directory, opened as often as a test likes."""

    def __init__(self, folder: Path, device: Device) -> None:
        self._stack = ExitStack()
        folder.mkdir(exist_ok=True)
        needed = device.number_of_cache_files_needed
        self.model = [folder / f"model{n}" for n in range(needed.model_cache)]
        self.data = [folder / f"data{n}" for n in range(needed.data_cache)]

    def files(
        self, token: bytes = NO_CACHE_TOKEN, flags: int = os.O_RDWR | os.O_CREAT
    ) -> CacheFiles:
        return CacheFiles(self._open(self.model, flags), self._open(self.data, flags), token)

    def _open(self, paths: Sequence[Path], flags: int) -> list[int]:
        fds = [os.open(path, flags, 0o600) for path in paths]
        for fd in fds:
            self._stack.callback(os.close, fd)
        return fds

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def opened(caching: Device, folder: Path) -> Iterator[Opened]:
    """Files that a model is cached in."""
    files = Opened(folder, caching)
    caching.prepare_async(scaling(), cache=files.files()).result(60)
    yield files
    files.close()


def test_files_and_token_prepare_a_model(caching: Device, opened: Opened) -> None:
    prepared = caching.prepare_from_cache(scaling(), opened.files())
    assert prepared.from_cache
    expected = caching.prepare(scaling()).execute([X]).outputs[0]
    assert prepared.execute([X]).outputs[0].tolist() == expected.tolist()


def test_a_cached_model_runs_in_a_burst(caching: Device, opened: Opened) -> None:
    prepared = caching.prepare_from_cache(scaling(), opened.files())
    expected = caching.prepare(scaling()).execute([X]).outputs[0]
    with prepared.open_burst() as burst:
        assert burst.execute([X]).outputs[0].tolist() == expected.tolist()


def wrong_files(opened: Opened) -> Iterator[CacheFiles]:
    """Too few, too many, none; of one direction."""
    good = opened.files()
    yield CacheFiles()
    yield CacheFiles(good.model)
    yield CacheFiles((), good.data)
    yield CacheFiles((*good.model, *good.model), good.data)
    yield CacheFiles(good.model, (*good.data, *good.data))
    yield CacheFiles([*good.model] * 32, good.data)
    for flags in (os.O_RDONLY, os.O_WRONLY):
        other = opened.files(flags=flags)
        yield CacheFiles(other.model, good.data)
        yield CacheFiles(good.model, other.data)


def test_wrong_files_prepare_nothing_from_the_cache(caching: Device, opened: Opened) -> None:
    for files in wrong_files(opened):
        with pytest.raises(InvalidArgument, match="P5"):
            caching.prepare_from_cache(scaling(), files)
    assert caching.prepare_from_cache(scaling(), opened.files()).from_cache


def test_wrong_files_do_not_keep_a_model_from_being_prepared(
    caching: Device, opened: Opened
) -> None:
    before = [path.read_bytes() for path in (*opened.model, *opened.data)]
    for files in wrong_files(opened):
        prepared = caching.prepare_async(scaling(2.0), cache=files).result(60)
        assert prepared.execute([X]).outputs
    assert [path.read_bytes() for path in (*opened.model, *opened.data)] == before


def test_files_may_have_any_content_and_offset_when_a_model_is_saved(
    caching: Device, opened: Opened
) -> None:
    files = opened.files()
    for fd in (*files.model, *files.data):
        os.truncate(fd, 100_000)
        os.lseek(fd, 50_000, os.SEEK_SET)
    caching.prepare_async(scaling(5.0), cache=files).result(60)
    assert caching.prepare_from_cache(scaling(5.0), files).from_cache
    assert os.fstat(files.model[0]).st_size < 50_000


def test_another_token_is_a_general_failure(caching: Device, opened: Opened) -> None:
    with pytest.raises(GeneralFailure, match="not what this driver wrote for this token"):
        caching.prepare_from_cache(scaling(), opened.files(b"x" * 32))


def test_a_changed_model_cache_is_a_general_failure(caching: Device, opened: Opened) -> None:
    content = bytearray(opened.model[0].read_bytes())
    content[-1] ^= 1
    opened.model[0].write_bytes(content)
    with pytest.raises(GeneralFailure):
        caching.prepare_from_cache(scaling(), opened.files())


@pytest.mark.parametrize("length", [0, 31, 33, 1000])
def test_a_token_that_has_not_32_bytes_is_an_invalid_argument(
    length: int, caching: Device, opened: Opened
) -> None:
    files = opened.files(bytes(length))
    with pytest.raises(InvalidArgument, match="S11"):
        caching.prepare_from_cache(scaling(), files)
    with pytest.raises(InvalidArgument, match="S11"):
        caching.prepare_async(scaling(), cache=files).result(60)


def test_a_deadline_that_has_passed_is_missed_for_good(caching: Device, opened: Opened) -> None:
    with pytest.raises(MissedDeadline) as missed:
        caching.prepare_from_cache(scaling(), opened.files(), deadline_ns=1)
    assert missed.value.status is ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_a_deadline_that_cannot_be_is_an_invalid_argument(caching: Device, opened: Opened) -> None:
    with pytest.raises(InvalidArgument, match="P5"):
        caching.prepare_from_cache(scaling(), opened.files(), deadline_ns=-1)


def test_a_deadline_far_ahead_is_kept(caching: Device, opened: Opened) -> None:
    ahead = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12
    assert caching.prepare_from_cache(scaling(), opened.files(), deadline_ns=ahead).from_cache


def test_a_driver_that_is_stopped_is_asked_for_its_files_no_longer_than_the_timeout(
    folder: Path,
) -> None:
    with nnburst.launch("reference") as device:
        os.kill(device.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(MissedDeadline):
                device.prepare(scaling(), cache_dir=folder, timeout=0.2)
            assert time.monotonic() - began < 10  # and not the 30 s of a call without a timeout
        finally:
            os.kill(device.pid, signal.SIGCONT)
        assert not device.prepare(scaling(), cache_dir=folder).from_cache


def test_the_next_driver_caches_in_the_same_folder_whatever_the_working_directory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for working in (second, first):
        working.mkdir()
        monkeypatch.chdir(working)
    with nnburst.launch("reference", recover=True) as device:
        prepared = device.prepare(scaling(), cache_dir="cache")
        monkeypatch.chdir(second)
        os.kill(device.pid, signal.SIGKILL)

        def executes() -> bool:
            with suppress(DeadObject):
                prepared.execute([X])
                return device.recoveries == 1
            return False

        wait_for(executes)
    assert len(list((first / "cache").iterdir())) == 2
    assert not list(second.iterdir())


def test_no_descriptor_stays_with_the_driver(caching: Device, opened: Opened) -> None:
    def count() -> int:
        return len(os.listdir(f"/proc/{caching.pid}/fd"))

    files, wrong = opened.files(), opened.files(b"x" * 32)
    caching.prepare_from_cache(scaling(), files).close()
    before = count()
    for _ in range(5):
        caching.prepare_from_cache(scaling(), files).close()
        caching.prepare_async(scaling(), cache=files).result(60).close()
        for bad in (wrong, CacheFiles(files.model)):
            with pytest.raises(nnburst.NnburstError):
                caching.prepare_from_cache(scaling(), bad)
    assert count() == before


# Tokens.

user_tokens = st.binary(min_size=32, max_size=32)


def test_a_token_is_the_hash_that_the_framework_makes() -> None:
    user = bytes(range(32))
    attributes = [
        ExtensionAttribute("b.ext", 1, b"one"),
        ExtensionAttribute("a.ext", 2, b"two"),
        ExtensionAttribute("a.ext", 1, b"three"),
    ]
    expected = hashlib.sha256(
        user
        + b"driver"
        + b"1.0"
        + struct.pack("<ii", 2, 110)
        + (b"a.ext" + struct.pack("<H", 1) + b"three")
        + (b"a.ext" + struct.pack("<H", 2) + b"two")
        + (b"b.ext" + struct.pack("<H", 1) + b"one")
    )
    found = cache_token(
        user,
        (),
        "driver",
        "1.0",
        preference=ExecutionPreference.SUSTAINED_SPEED,
        priority=Priority.HIGH,
        attributes=attributes,
    )
    assert found == expected.digest()


@given(
    st.lists(
        st.tuples(
            user_tokens,
            st.sampled_from(["driver", "other"]),
            st.sampled_from(["nnburst 1", "nnburst 2"]),
            st.sampled_from(ExecutionPreference),
            st.sampled_from(Priority),
        ),
        unique=True,
    )
)
def test_tokens_differ_where_anything_differs(ways: list[Any]) -> None:
    found = {
        cache_token(user, (), name, version, preference=preference, priority=priority)
        for user, name, version, preference, priority in ways
    }
    assert len(found) == len(ways)


def test_a_models_token_is_its_content() -> None:
    assert model_token(scaling(), ()) == model_token(scaling(), ())
    assert model_token(scaling(), ()) != model_token(scaling(2.0), ())
    pools = [np.zeros(4, np.uint8)], [np.zeros(4, np.float32)], [np.ones(4, np.uint8)]
    assert len({model_token(scaling(), pool) for pool in pools}) == 3
    halves = [np.zeros(2, np.uint8), np.zeros(2, np.uint8)]
    assert model_token(scaling(), pools[0]) != model_token(scaling(), halves)


@pytest.mark.campaign
@pytest.mark.shared
@needs_litert
def test_a_network_comes_from_the_cache_in_half_the_time(shared_dir: Path, tmp_path: Path) -> None:
    """Correct always; the time only if NNBURST_STRICT_TIMING=1 declares the machine quiet."""
    network = nnburst.load(shared_dir / "models/mobilenet_v2_1.0_224_uint8.tflite")
    image = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3), np.uint8)

    def prepare(folder: Path | None) -> tuple[bool, float, list[int]]:
        with nnburst.launch("litert") as device:
            started = time.perf_counter()
            prepared = device.prepare(network, cache_dir=folder)
            took = (time.perf_counter() - started) * 1e3
            return prepared.from_cache, took, prepared.execute([image]).outputs[0].tolist()

    ratios = []
    for number in range(9 if STRICT else 1):
        folder = tmp_path / str(number)
        cold, saved, warm = prepare(None), prepare(folder), prepare(folder)
        assert [way[0] for way in (cold, saved, warm)] == [False, False, True]
        assert warm[2] == saved[2] == cold[2]
        ratios.append(warm[1] / cold[1])
        print(f"cold {cold[1]:.1f} ms, saved {saved[1]:.1f} ms, from the cache {warm[1]:.1f} ms")
    print(f"from the cache / cold: {statistics.median(ratios):.2f}")
    if STRICT:
        assert statistics.median(ratios) <= 0.5


OWN = """
import os
from nnburst.executor.reference.executor import ReferenceExecutor

class Own(ReferenceExecutor):
    name = "own"
    engine_version = os.environ["OWN_VERSION"]
"""


@pytest.mark.campaign
def test_another_version_of_an_executor_of_others_makes_caches_unusable(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)

    def run(version: str) -> bool:
        environment = {"PYTHONPATH": str(tmp_path), "OWN_VERSION": version}
        with nnburst.launch("own:Own", env=environment) as device:
            return device.prepare(scaling(), cache_dir=folder).from_cache

    assert [run("1"), run("1"), run("2"), run("2")] == [False, True, False, True]
