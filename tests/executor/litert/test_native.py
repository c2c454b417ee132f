"""The trial run that decides whether the library is the one that csrc/litert.c expects."""

from __future__ import annotations

import pytest

from executor.litert.networks import addition, aligned, bind, needs_engine
from nnburst._native import ffi, lib
from nnburst.executor.built_in import litert
from nnburst.executor.litert import native

pytestmark = needs_engine


def test_library_of_the_wheel_passes_its_trial() -> None:
    assert native._failed_trial() == ""


def test_network_with_another_result_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = native.GraphWriter()
    vector = native._trial_network()[1]
    x = graph.tensor(vector)
    content = graph.finish([x], graph.operator("RELU", [x], [vector]))
    monkeypatch.setattr(native, "_trial_network", lambda: (content, vector))
    assert str(int(lib.NNB_LITERT_WRONG_RESULT)) in native._failed_trial()


def test_library_of_another_minor_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MINORS", ("1.0.",))
    native.available.cache_clear()
    assert not native.available()
    native.available.cache_clear()


def test_refused_network_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert native.available()
    message = ffi.new("char[]", int(lib.NNB_LITERT_MESSAGE_BYTES))
    engine = lib.nnb_litert_engine_new_unlocked(b"no network", 10, 1, -1, message)
    assert engine == ffi.NULL
    assert native._text(message).startswith("status ")


def test_engine_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    model = addition()
    bind(litert().prepare(model, []), model, [aligned(16), aligned(16)]).run()
    assert capfd.readouterr().err == ""
