"""The foreign parts of a wheel and its requirements: names, versions, licences."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from tools.wheels.compile import ROOT

LOCK: Final = ROOT / "requirements.lock"
_PINNED: Final = re.compile(r"^([\w.-]+)==(\S+)(?: ; .*)? \\$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """Something that others have made.

    Attributes:
        name: of its distribution.
        version: the one that was used.
        license: as an SPDX expression; empty if its metadata have none.
        why: how it comes to be there.
        license_files: texts that must go along with it.
    """

    name: str
    version: str
    license: str
    why: str
    license_files: tuple[Path, ...] = ()


def locked_versions() -> dict[str, str]:
    """Version of each distribution in the lock file, by normalised name."""
    return {normalised(name): version for name, version in _PINNED.findall(LOCK.read_text())}


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def compiled_in() -> list[Part]:
    """Code of others that the compiled files contain."""
    return [
        _installed("cffi", "its wrappers are compiled into the C module", "MIT-0"),
        _installed("ziglang", "its compiler-rt is linked statically", "MIT"),
    ]


def required() -> list[Part]:
    """The required distributions, in the versions of the lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = locked_versions()
    parts = []
    for line in project["dependencies"]:
        name = normalised(Requirement(line).name)
        expression = importlib.metadata.metadata(name).get("License-Expression", "")
        parts.append(Part(name, versions[name], expression, f"required: {line}"))
    return parts


def _installed(name: str, why: str, expression: str) -> Part:
    found = importlib.metadata.distribution(name)
    texts = [
        Path(str(file.locate())) for file in found.files or [] if file.name.startswith("LICENSE")
    ]
    own = tuple(path for path in texts if path.parent.name in ("licenses", name))
    if not own:
        raise FileNotFoundError(f"the licence of {name} is not installed with it")
    return Part(name, found.version, expression, why, own)
