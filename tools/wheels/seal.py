"""The same bytes for the same content, with licences and list of parts inside."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.wheels.parts import Part

#: The first moment that an archive can name.
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE: Final = 0o100644 << 16


def seal(wheel: Path, added: Mapping[str, bytes], licensed: list[Part]) -> None:
    """Write `wheel` anew: sorted, without dates and modes of this machine.

    Args:
        wheel: changed in place.
        added: files for its .dist-info, by their paths there.
        licensed: parts whose licences go along.
    """
    contents = _contents(wheel)
    info = next(name.partition("/")[0] for name in contents if name.endswith(".dist-info/WHEEL"))
    contents |= {f"{info}/{name}": data for name, data in added.items()}
    texts = {
        f"{part.name}/{path.name}": path.read_bytes()
        for part in licensed
        for path in part.license_files
    }
    contents |= {f"{info}/licenses/{name}": data for name, data in texts.items()}
    contents[f"{info}/METADATA"] = _with_licenses(contents[f"{info}/METADATA"], sorted(texts))
    record = f"{info}/RECORD"
    contents.pop(record, None)
    names = sorted(contents, key=lambda name: (name.startswith(f"{info}/"), name))
    contents[record] = _record(contents, names, record)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*names, record]:
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _REGULAR_FILE
            entry.create_system = 3  # Unix, whose modes these are
            archive.writestr(entry, contents[name])


def replace_file(wheel: Path, name: str, data: bytes) -> None:
    """Give a file of `wheel` other content; `seal` makes the wheel whole again."""
    contents = _contents(wheel) | {name: data}
    with zipfile.ZipFile(wheel, "w") as archive:
        for entry, content in contents.items():
            archive.writestr(entry, content)


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}


def _with_licenses(metadata: bytes, names: list[str]) -> bytes:
    """The metadata with the fields `License-File` of `names` behind the last one that is there."""
    *_, last = re.finditer(rb"^License-File: .*\n", metadata, re.MULTILINE)
    fields = "".join(f"License-File: {name}\n" for name in names).encode()
    return metadata[: last.end()] + fields + metadata[last.end() :]


def _record(contents: Mapping[str, bytes], names: list[str], record: str) -> bytes:
    lines = []
    for name in names:
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=")
        lines.append(f"{name},sha256={digest.decode()},{len(contents[name])}\n")
    return "".join([*lines, f"{record},,\n"]).encode()
