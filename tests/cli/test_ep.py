"""`nnburst ep` prints where the plugin for onnxruntime is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnburst import onnxruntime
from nnburst.capi import installed
from nnburst.cli import main
from nnburst.hal.errors import DeviceUnavailable


@pytest.mark.skipif(not installed.PROVIDER_LIBRARY.is_file(), reason="built without the library")
def test_path_and_name_are_printed_alone_or_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ep", "--path"]) == 0
    path = capsys.readouterr().out.rstrip("\n")
    assert path == onnxruntime.get_library_path()
    assert Path(path).name == "libonnxruntime_ep_nnburst.so"
    assert main(["ep", "--name"]) == 0
    assert capsys.readouterr().out == f"{onnxruntime.get_ep_name()}\n"
    assert main(["ep"]) == 0
    assert capsys.readouterr().out == f"NnburstExecutionProvider {path}\n"


def test_library_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(onnxruntime, "PROVIDER_LIBRARY", tmp_path / "none.so")
    with pytest.raises(DeviceUnavailable, match=r"none.so: the file does not exist"):
        onnxruntime.get_library_path()
