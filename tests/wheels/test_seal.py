"""A sealed wheel has the same bytes whatever machine has zipped it, and a record that is true."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="extra wheels is not installed")

from tools.wheels.parts import Part
from tools.wheels.seal import seal

FILES = {
    "nnburst/a.py": b"a = 1\n",
    "nnburst/_native.abi3.so": bytes(range(256)),
    "nnburst-1.dist-info/METADATA": b"Name: nnburst\nLicense-File: LICENSE\nRequires-Dist: numpy\n",
    "nnburst-1.dist-info/WHEEL": b"Wheel-Version: 1.0\n",
    "nnburst-1.dist-info/RECORD": b"stale",
}


def sealed(path: Path, names: list[str], date: tuple[int, int, int, int, int, int]) -> Path:
    """A wheel of FILES, in the order of `names` and of this date, sealed."""
    text = path.parent / "LICENSE"
    text.write_bytes(b"do as you like\n")
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name, date), FILES[name])
    seal(path, {"sboms/parts.json": b"{}"}, [Part("other", "1", "MIT", "linked", (text,))])
    return path


def test_same_content_is_the_same_bytes(tmp_path: Path) -> None:
    names = list(FILES)
    one = sealed(tmp_path / "one.whl", names, (1999, 1, 1, 0, 0, 0))
    other = sealed(tmp_path / "other.whl", names[::-1], (2026, 5, 6, 7, 8, 10))
    assert one.read_bytes() == other.read_bytes()


def test_record_has_the_hash_of_every_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(sealed(tmp_path / "one.whl", list(FILES), (1999, 1, 1, 0, 0, 0))) as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    record = contents.pop("nnburst-1.dist-info/RECORD").decode()
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(record))}
    assert rows.pop("nnburst-1.dist-info/RECORD") == ["", ""]
    assert rows == {
        name: [
            "sha256="
            + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="),
            str(len(data)),
        ]
        for name, data in contents.items()
    }


def test_licences_of_what_is_linked_go_along_and_are_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(sealed(tmp_path / "one.whl", list(FILES), (1999, 1, 1, 0, 0, 0))) as wheel:
        assert wheel.read("nnburst-1.dist-info/licenses/other/LICENSE") == b"do as you like\n"
        metadata = wheel.read("nnburst-1.dist-info/METADATA").decode().splitlines()
        assert wheel.read("nnburst-1.dist-info/sboms/parts.json") == b"{}"
    assert metadata[1:3] == ["License-File: LICENSE", "License-File: other/LICENSE"]
