"""`nnburst delegate` prints where the delegate for LiteRT is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnburst import litert
from nnburst.capi import installed
from nnburst.cli import main
from nnburst.hal.errors import DeviceUnavailable


@pytest.mark.skipif(not installed.DELEGATE_LIBRARY.is_file(), reason="built without the library")
def test_path_is_printed_with_and_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["delegate", "--path"], ["delegate"]):
        assert main(words) == 0
        path = capsys.readouterr().out.rstrip("\n")
        assert path == litert.get_library_path()
        assert Path(path).name == "libnnburst_delegate.so"


def test_library_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(litert, "DELEGATE_LIBRARY", tmp_path / "none.so")
    with pytest.raises(DeviceUnavailable, match=r"none.so: the file does not exist"):
        litert.get_library_path()
