"""OpenVINO's library is refused by its version before anything else of it is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

#: A library that has a version and no other function.
SOURCE = """
struct version { const char *build_number, *description; };
int ov_get_openvino_version(struct version *v) { v->build_number = VERSION; return 0; }
void ov_version_free(struct version *v) { v->build_number = 0; }
char *ov_get_last_err_msg(void) { return 0; }
void ov_free(char *text) { (void)text; }
"""


def refusal_of(version: str, folder: Path) -> str:
    """The error of a process that opens a library of this version, as the package has it."""
    libraries = folder / "openvino" / "libs"
    libraries.mkdir(parents=True)
    (folder / "openvino" / "__init__.py").touch()
    library = str(libraries / "libopenvino_c.so.2500")
    command = ["gcc", "-shared", "-fPIC", f'-DVERSION="{version}"', "-x", "c", "-", "-o", library]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    opened = subprocess.run(
        [sys.executable, "-c", "from nnburst.executor.openvino import library; library()"],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert opened.returncode == 1, opened.stderr
    return opened.stderr.strip().rpartition("\n")[2]


@pytest.mark.every_day("2025.3.0-19807-44526285f24", "custom_build")
@pytest.mark.parametrize("version", ["2025.3.0-19807-44526285f24", "2024.6.0", "custom_build", ""])
def test_older_version_is_refused_with_what_was_found_and_wanted(
    version: str, tmp_path: Path
) -> None:
    refusal = refusal_of(version, tmp_path)
    assert "DeviceUnavailable: libopenvino_c.so.2500 cannot be used" in refusal
    assert refusal.endswith(f"version {version!r}, expected 2025.4 or later")


@pytest.mark.every_day("2025.10.1")
@pytest.mark.parametrize("version", ["2025.4.0-20398-8fdad55727d", "2025.10.1", "2026.0.0"])
def test_version_that_is_supported_and_lacks_a_function_is_refused_by_its_name(
    version: str, tmp_path: Path
) -> None:
    assert refusal_of(version, tmp_path).endswith("cannot be used: has no ov_core_create")
