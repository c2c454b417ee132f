"""The audit of wheels finds faults by itself, beside its judges."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="extra wheels is not installed")
pytest.importorskip("elftools", reason="extra wheels is not installed")

from tools.wheels.audit import _look_for_static_variables
from tools.wheels.compile import BuildFailed

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")

SOURCE = "static _Thread_local int mine{model};\nint *place(void) {{ return &mine; }}\n"


def wheel_of(model: str, folder: Path) -> Path:
    """A wheel of one library with a variable for each thread, of this model."""
    (folder / "code.c").write_text(SOURCE.format(model=model))
    command = ["gcc", "-shared", "-fPIC", "-o", "code.so", "code.c"]
    subprocess.run(command, cwd=folder, check=True)
    with zipfile.ZipFile(folder / "one.whl", "w") as archive:
        archive.write(folder / "code.so", "nnburst/code.so")
    return folder / "one.whl"


def test_variables_that_musl_has_no_space_for_are_found(tmp_path: Path) -> None:
    wheel = wheel_of(' __attribute__((tls_model("initial-exec")))', tmp_path)
    with pytest.raises(BuildFailed, match=r"nnburst/code\.so has thread variables"):
        _look_for_static_variables(wheel)


def test_variables_of_a_module_loaded_late_pass(tmp_path: Path) -> None:
    _look_for_static_variables(wheel_of("", tmp_path))
