"""tools/musl: what it does if it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.musl.__main__ import main


def test_what_the_machine_lacks_is_named_in_one_line_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([str(tmp_path / "folder")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("make musl wants apt-get, gcc, make, tar, xz")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
