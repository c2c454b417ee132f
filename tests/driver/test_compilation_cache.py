"""Compilation caching in a driver, without a client: what CompilationCachingTests of the VTS expect."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driver.cached_models import (
    COMPUTING,
    EXECUTORS,
    TOKEN,
    Files,
    device,
    half_precision,
    largest,
    needs_litert,
    pooled,
    prepare,
    refuses,
    run,
    scaling,
)
from nnburst.driver.model import compilation_cache
from nnburst.driver.model.device import Device
from nnburst.driver.model.pools import Pool
from nnburst.executor.base import Cached, Executor
from nnburst.executor.null import NullExecutor, NullPrepared
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import (
    ExecutionPreference,
    Priority,
)
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles, Request
from nnburst.importer.load import load


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the test's own; the version of the sources is not looked up while others may edit them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(compilation_cache, "_build", lambda: "build")


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Files]:
    """Prepares and saves a model."""

    def save(executor: str, model: Model | None = None, name: str = "entry") -> Files:
        of = device(executor)
        files = Files(tmp_path, of, name)
        assert files.save(of, prepare(of, model or scaling()))
        return files

    return save


@pytest.mark.parametrize("executor", COMPUTING)
@pytest.mark.parametrize("make", [scaling, largest, half_precision])
def test_a_loaded_model_computes_what_the_saved_one_did(
    executor: str, make: Callable[[], Model], tmp_path: Path
) -> None:
    of = device(executor)
    prepared = prepare(of, make())
    files = Files(tmp_path, of)
    assert files.save(of, prepared)
    loaded = files.load(device(executor))
    assert type(loaded._prepared) is type(prepared._prepared)
    for seed in range(3):
        assert run(loaded, seed) == run(prepared, seed)


@pytest.mark.parametrize("executor", COMPUTING)
def test_constants_in_a_pool_are_kept_too(executor: str, tmp_path: Path) -> None:
    of = device(executor)
    model, pools = pooled()
    prepared = prepare(of, model, pools)
    files = Files(tmp_path, of)
    np.frombuffer(pools[0].writable, np.uint8)[...] = 0  # what counts is what was prepared
    assert files.save(of, prepared)
    pools[0].close()
    assert run(files.load(device(executor))) == run(prepared) == run(prepare(of, scaling()))


@pytest.mark.parametrize("executor", COMPUTING)
def test_a_loaded_model_can_be_saved_again(executor: str, tmp_path: Path) -> None:
    of = device(executor)
    first, second = Files(tmp_path, of, "first"), Files(tmp_path, of, "second")
    assert first.save(of, prepare(of, largest()))
    assert second.save(of, first.load(of))
    assert run(second.load(of)) == run(first.load(of))


def test_preference_and_priority_are_restored(saved: Callable[..., Files]) -> None:
    loaded = saved("null").load(device("null"))
    assert loaded.preference is ExecutionPreference.SUSTAINED_SPEED
    assert loaded.priority is Priority.LOW


def test_a_loaded_model_validates_requests(saved: Callable[..., Files]) -> None:
    loaded = saved("reference").load(device("reference"))
    with pytest.raises(InvalidArgument, match="R1"):
        loaded.bind(Request((), ()), [])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_files_of_any_size_and_offset_are_overwritten(executor: str, tmp_path: Path) -> None:
    of = device(executor)
    files = Files(tmp_path, of)
    for path in (*files.model, *files.data):
        path.write_bytes(b"x" * 1_000_000)
    with files.opened() as (model, data):
        for fd in (*model, *data):
            os.lseek(fd, 12345, os.SEEK_SET)
        assert of.compilation_cache.save(prepare(of, scaling()), TOKEN, model, data)
    assert all(path.stat().st_size < 1_000_000 for path in (*files.model, *files.data))
    with files.opened() as (model, data):
        for fd in (*model, *data):
            os.lseek(fd, 17, os.SEEK_SET)
        of.compilation_cache.load(TOKEN, model, data).close()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_another_token_opens_nothing(executor: str, saved: Callable[..., Files]) -> None:
    refuses(executor, saved(executor), bytes(32))


@pytest.mark.every_day("reference")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_bit_flipped_in_any_byte_of_the_model_cache_is_noticed(
    executor: str, saved: Callable[..., Files]
) -> None:
    files = saved(executor)
    content = files.model[0].read_bytes()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        files.model[0].write_bytes(changed)
        refuses(executor, files)
    files.model[0].write_bytes(content)
    files.load(device(executor)).close()


@pytest.mark.every_day("reference")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_model_cache_truncated_at_any_length_is_noticed(
    executor: str, saved: Callable[..., Files]
) -> None:
    files = saved(executor)
    content = files.model[0].read_bytes()
    for length in reversed(range(len(content))):
        os.truncate(files.model[0], length)
        refuses(executor, files)


@pytest.mark.shared
@needs_litert
def test_a_large_networks_files_are_held_to_every_byte_too(
    shared_dir: Path, tmp_path: Path
) -> None:
    """Each part of the files is damaged somewhere; so much takes a second, and every byte an hour."""
    network = load(shared_dir / "models/mobilenet_v2_1.0_224_uint8.tflite")
    of = device("litert")
    pools = [_pool(content) for content in network.pools]
    files = Files(tmp_path, of)
    assert files.save(of, prepare(of, network.model, pools))
    rng = np.random.default_rng(3)
    for path, flips in ((files.model[0], 200), (files.data[0], 50)):
        good = path.read_bytes()
        for at in rng.integers(0, len(good), flips):
            with path.open("r+b") as file:
                file.seek(int(at))
                file.write(bytes([good[at] ^ 1 << int(at) % 8]))
            refuses("litert", files)
            with path.open("r+b") as file:
                file.seek(int(at))
                file.write(good[at : at + 1])
        for length in rng.integers(0, len(good), 20):
            path.write_bytes(good[:length])
            refuses("litert", files)
        path.write_bytes(good)
    files.load(of).close()


def _pool(content: Any) -> Pool:
    memory = SharedMemory.create(content.nbytes)
    memory.map(writable=True)[: content.nbytes] = content.reshape(-1).view(np.uint8)
    return Pool(memory, content.nbytes)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("more", [b"\0", b"x", bytes(4096)])
def test_bytes_appended_to_the_model_cache_are_noticed(
    executor: str, more: bytes, saved: Callable[..., Files]
) -> None:
    files = saved(executor)
    files.model[0].write_bytes(files.model[0].read_bytes() + more)
    refuses(executor, files)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_model_cache_of_another_token_is_noticed(
    executor: str, saved: Callable[..., Files], tmp_path: Path
) -> None:
    of = device(executor)
    other = Files(tmp_path, of, "other")
    assert other.save(of, prepare(of, scaling(7.0)), b"o" * 32)
    files = saved(executor)
    other.model[0].rename(files.model[0])
    refuses(executor, files)


@pytest.mark.parametrize("executor", COMPUTING)
def test_two_models_with_one_token_are_never_mixed(
    executor: str, saved: Callable[..., Files]
) -> None:
    """A token that two models share cannot be told apart; their files still can."""
    one, other = saved(executor, scaling(2.0), "one"), saved(executor, scaling(3.0), "other")
    other.model[0].rename(one.model[0])
    expected = {str(run(prepare(device(executor), scaling(f)))) for f in (2.0, 3.0)}
    try:
        found = str(run(one.load(device(executor))))
    except GeneralFailure:
        return  # constants differ
    assert found in expected


@pytest.mark.parametrize("executor", COMPUTING)
def test_a_damaged_data_cache_does_no_harm(executor: str, tmp_path: Path) -> None:
    of = device(executor)
    model, pools = pooled()
    files = Files(tmp_path, of)
    assert files.save(of, prepare(of, model, pools))
    content = files.data[0].read_bytes()
    flipped = np.frombuffer(content, np.uint8) ^ np.diag(np.full(len(content), 255, np.uint8))
    for damaged in [*map(bytes, flipped), b"", content[:-1], content + b"\0"]:
        files.data[0].write_bytes(damaged)
        refuses(executor, files)
    files.data[0].write_bytes(content)
    files.load(of).close()


@pytest.mark.parametrize("executor", COMPUTING)
def test_files_that_are_swapped_while_they_are_loaded_give_one_model_or_none(
    executor: str, saved: Callable[..., Files]
) -> None:
    one, other = saved(executor, scaling(2.0), "one"), saved(executor, scaling(3.0), "other")
    contents = [(f.model[0].read_bytes(), f.data[0].read_bytes()) for f in (one, other)]
    expected = {str(run(prepare(device(executor), scaling(f)))) for f in (2.0, 3.0)}
    stop, outcomes = threading.Event(), []

    def swap() -> None:
        at = 0
        while not stop.is_set():
            at ^= 1
            for path, content in zip((one.model[0], one.data[0]), contents[at], strict=True):
                fd = os.open(path, os.O_WRONLY)
                os.pwrite(fd, content, 0)
                os.ftruncate(fd, len(content))
                os.close(fd)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        of = device(executor)
        for _ in range(100):
            try:
                outcomes.append(str(run(one.load(of))))
            except GeneralFailure:
                outcomes.append("")
    finally:
        stop.set()
        swapping.join()
    assert set(outcomes) <= {"", *expected}


def wrong_descriptors(files: Files, stack: ExitStack) -> Iterator[tuple[list[int], list[int]]]:
    """Lists of descriptors that do not fit: too few, too many, none, of one direction, no files."""
    model, data = stack.enter_context(files.opened())
    yield model, []
    yield [], data
    yield [], [*model, *data]
    yield [*model, *model], data
    yield model, [*data, *data]
    yield data, [*model, *data]
    for flags in (os.O_RDONLY, os.O_WRONLY):
        other = stack.enter_context(files.opened(flags))
        yield other[0], data
        yield model, other[1]
    for fd in os.pipe():
        stack.callback(os.close, fd)
        yield [fd], data
        yield model, [fd]


@pytest.mark.parametrize("executor", COMPUTING)
def test_descriptors_that_do_not_fit_are_refused_at_load(
    executor: str, saved: Callable[..., Files]
) -> None:
    files, of = saved(executor), device(executor)
    with ExitStack() as stack:
        for model, data in wrong_descriptors(files, stack):
            with pytest.raises(InvalidArgument, match="P5"):
                of.compilation_cache.load(TOKEN, model, data)
    files.load(of).close()


@pytest.mark.parametrize("executor", COMPUTING)
def test_descriptors_that_do_not_fit_are_only_logged_at_save(
    executor: str, saved: Callable[..., Files], caplog: pytest.LogCaptureFixture
) -> None:
    files, of = saved(executor), device(executor)
    before = [path.read_bytes() for path in (*files.model, *files.data)]
    prepared = prepare(of, scaling(9.0))
    with ExitStack() as stack:
        for model, data in wrong_descriptors(files, stack):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert not of.compilation_cache.save(prepared, TOKEN, model, data)
            assert "could not be cached: device:P5" in caplog.text
    assert [path.read_bytes() for path in (*files.model, *files.data)] == before
    assert run(prepared)


def test_without_files_nothing_is_cached_or_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    of = device("reference")
    with caplog.at_level(logging.WARNING):
        assert not of.compilation_cache.save(prepare(of, scaling()), TOKEN, [], [])
    assert caplog.text == ""


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_token_has_32_bytes(length: int, saved: Callable[..., Files]) -> None:
    with pytest.raises(InvalidArgument, match="S11"):
        saved("null").load(device("null"), bytes(length))


def test_an_empty_file_is_not_a_model_cache(tmp_path: Path) -> None:
    files = Files(tmp_path, device("null"))
    with files.opened():
        pass
    refuses("null", files)


def test_a_disk_that_is_full_is_only_logged(
    saved: Callable[..., Files], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, of = saved("reference"), device("reference")
    prepared = prepare(of, scaling())

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "pwrite", full)
        assert not files.save(of, prepared)
    assert "No space left" in caplog.text
    refuses("reference", files)
    assert run(prepared)


def test_a_key_that_cannot_be_used_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    of = device("reference")
    with caplog.at_level(logging.WARNING):
        assert not Files(tmp_path, of).save(of, prepare(of, scaling()))
    assert "the key of the compilation cache" in caplog.text


def test_another_users_key_opens_nothing(
    saved: Callable[..., Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = saved("reference")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
    refuses("reference", files)


def test_another_version_opens_nothing(
    saved: Callable[..., Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = saved("reference")
    monkeypatch.setattr("nnburst.driver.model.device.__version__", "0.0.0")
    refuses("reference", files)


def test_other_sources_of_the_same_version_open_nothing(
    saved: Callable[..., Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = saved("reference")
    monkeypatch.setattr(compilation_cache, "_build", lambda: "another build")
    refuses("reference", files)


@needs_litert
def test_another_executor_opens_nothing(saved: Callable[..., Files]) -> None:
    refuses("litert", saved("reference"))


class Forgetful(NullExecutor):
    """A caching executor that cannot cache the models that it prepares."""

    def prepare(self, *args: object) -> NullPrepared:  # type: ignore[override]
        return Unkept(*args[:1])  # type: ignore[arg-type]


class Unkept(NullPrepared):
    def to_cache(self) -> Cached | None:  # type: ignore[override]
        return None


def test_a_model_that_cannot_be_kept_leaves_nothing_to_load(
    saved: Callable[..., Files], tmp_path: Path
) -> None:
    of = Device("null", Forgetful())
    files = saved("null")
    assert not files.save(of, prepare(of, scaling()))
    assert files.model[0].read_bytes() == b""
    refuses("null", files)


class Failing(NullExecutor):
    """An executor whose `to_cache` fails."""

    def prepare(self, *args: object) -> NullPrepared:  # type: ignore[override]
        return Broken(*args[:1])  # type: ignore[arg-type]


class Broken(NullPrepared):
    def to_cache(self) -> Cached | None:  # type: ignore[override]
        raise ZeroDivisionError("an executor's mistake")


def test_an_executor_that_fails_to_say_what_to_keep_is_only_logged(
    saved: Callable[..., Files], caplog: pytest.LogCaptureFixture
) -> None:
    of = Device("null", Failing())
    assert not saved("null").save(of, prepare(of, scaling()))
    assert "an executor's mistake" in caplog.text


def test_an_executor_without_caching_needs_no_files(tmp_path: Path) -> None:
    class Bare(Executor):
        """An executor without optional abilities."""

        name = "bare"

        def prepare(self, model: Model, *_: object) -> NullPrepared:
            return NullPrepared(model)

    of = Device("bare", Bare())
    assert of.compilation_cache.files_needed == NumberOfCacheFiles(0, 0)
    assert not Files(tmp_path, device("null")).save(of, prepare(of, scaling()))
    with pytest.raises(GeneralFailure, match="caches no compilations"):
        of.compilation_cache.load(TOKEN, [], [])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_number_of_files_is_the_same_at_every_start(executor: str) -> None:
    counts = {device(executor).compilation_cache.files_needed for _ in range(2)}
    assert counts == {(1, 0) if executor == "null" else (1, 1)}
