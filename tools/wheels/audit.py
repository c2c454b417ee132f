"""Checks a finished wheel by auditwheel, abi3audit and a look at its bytes."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from tools.wheels.compile import ROOT, BuildFailed, run
from tools.wheels.target import Target

_STATIC_TLS: Final = 0x10


def audit(wheel: Path, target: Target) -> str:
    """Check `wheel`; a sentence for the reader.

    Raises:
        BuildFailed: it asks more of a machine than `target` has, uses what is not in the stable ABI,
            or has paths of this machine in it.
    """
    found = run(sys.executable, "-m", "auditwheel", "show", "--json", *_libraries(target), wheel)
    shown = json.loads(found[found.index("{") :])
    if shown["overall_tag"] != target.platform or shown["external_libs"]:
        raise BuildFailed(f"{wheel.name} is not {target.platform}:\n{found}")
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        run(sys.executable, "-m", "abi3audit", "--strict", "-R", "-o", report.name, wheel)
        (scanned,) = json.loads(Path(report.name).read_text())["specs"].values()
    extensions = scanned["wheel"]
    problems = [each for each in extensions if not each["result"]["is_abi3"]]
    if problems or not extensions:
        raise BuildFailed(f"{wheel.name} is not of the stable ABI: {problems}")
    _look_for_paths(wheel)
    if target.is_musl:
        _look_for_static_variables(wheel)
    return (
        f"{target.platform}, {len(extensions)} extension of the stable ABI, no path of the builder"
    )


def _libraries(target: Target) -> list[str]:
    """The C library musl is not to be looked for among those of this machine."""
    return ["--ldpaths", "/nonexistent"] if target.is_musl else []


def _look_for_paths(wheel: Path) -> None:
    unwanted = [str(path).encode() for path in (ROOT, Path(tempfile.gettempdir()), Path.home())]
    for name, data in _compiled(wheel).items():
        if paths := [path.decode() for path in unwanted if path + b"/" in data]:
            raise BuildFailed(f"{wheel.name}: {name} has {paths} in it")


def _look_for_static_variables(wheel: Path) -> None:
    """Musl keeps no space for variables of threads of a module that is loaded late, and refuses it."""
    for name, data in _compiled(wheel).items():
        if wants_static_variables(data):
            raise BuildFailed(
                f"{wheel.name}: {name} has thread variables of the model initial-exec"
            )


def wants_static_variables(library: bytes) -> bool:
    """Whether a compiled library addresses variables of threads as if it were loaded with the program."""
    section = ELFFile(io.BytesIO(library)).get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    return any(tag.entry.d_val & _STATIC_TLS for tag in section.iter_tags("DT_FLAGS"))


def _compiled(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
