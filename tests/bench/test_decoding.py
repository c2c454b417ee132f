"""A decoder is measured on a burst and by two loops in process, which give the same tokens."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime", reason="the engine")

from nnburst.bench.network import decoding
from nnburst.testing.models.transformers import FORMS, SMALL_DECODER, Form


@pytest.mark.every_day("grouped")
@pytest.mark.parametrize("form", FORMS)
def test_decoder_gives_the_same_tokens_on_a_burst_and_in_process(
    form: Form,
) -> None:
    found = decoding.measure(form, 48, 32, SMALL_DECODER)
    assert (found.form, found.context) == (form, 48)
    assert min(found.burst_us, found.engine_us, found.numpy_us, found.ratio) > 0


def test_tokens_that_differ_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding._ByNumpy, "step", lambda *_: -1)
    with pytest.raises(ValueError, match="grouped: tokens differ"):
        decoding.measure("grouped", 48, 16, SMALL_DECODER)


def test_command_prints_a_line_for_each_form_and_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    decoding.main(["--small", "--forms", "concat", "--contexts", "32", "48", "--tokens", "16"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("concat at 32: burst ")
    assert second.startswith("concat at 48: burst ")
