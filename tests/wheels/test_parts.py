"""The lock file has all that any extra needs, and the list of parts is the same each time."""

from __future__ import annotations

import json
import tomllib

import pytest

pytest.importorskip("packaging", reason="extra wheels is not installed")

from packaging.requirements import Requirement
from tools.wheels.compile import ROOT
from tools.wheels.parts import LOCK, Part, locked_versions, normalised

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = sorted(
    {
        *PROJECT["project"]["dependencies"],
        *(need for needs in PROJECT["project"]["optional-dependencies"].values() for need in needs),
    }
)


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_lock_file_has_a_version_that_the_requirement_allows(line: str) -> None:
    requirement = Requirement(line)
    assert locked_versions()[normalised(requirement.name)] in requirement.specifier


def test_lock_file_names_no_host_and_has_a_hash_for_each_version() -> None:
    text = LOCK.read_text()
    assert "://" not in text
    assert "index" not in [line.lstrip("-").split()[0] for line in text.splitlines() if line]
    blocks = [block for block in text.split("\n") if "==" in block]
    assert all(block.endswith("\\") for block in blocks), "hashes follow each version"


def test_list_of_parts_is_the_same_each_time_and_names_no_host() -> None:
    pytest.importorskip("cyclonedx", reason="extra wheels is not installed")
    from tools.wheels.sbom import list_of_parts

    contained = [Part("cffi", "2.0", "MIT", "compiled in"), Part("zig", "0.1", "", "linked")]
    required = [Part("cffi", "2.0", "MIT", "required: cffi>=1")]
    document = list_of_parts("1.2.3", contained, required)
    assert document == list_of_parts("1.2.3", contained[::-1], required)
    assert b"://" not in document
    parts = json.loads(document)
    assert parts["metadata"]["component"]["version"] == "1.2.3"
    assert sorted(part["bom-ref"] for part in parts["components"]) == [
        "contained:cffi",
        "contained:zig",
        "required:cffi",
    ]
