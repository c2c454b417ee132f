"""Wheels by zig: equal bytes twice, clean by their judges, and running without a compiler."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="extra wheels is not installed")

from tools.wheels.compile import ROOT
from tools.wheels.target import TARGETS
from tools.wheels.trial import pythons

NO_TOOLS = any(
    importlib.util.find_spec(name) is None for name in ("ziglang", "abi3audit", "auditwheel")
)
LIBRARY = """
LIBRARIES = (Library("lib/libanswer.so", ("answer.c",), link=("-Wl,-z,now",)),)
# cffi's generated wrappers"""


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.campaign
@pytest.mark.skipif(NO_TOOLS, reason="extra wheels is not installed")
def test_every_wheel_is_built_twice_with_equal_bytes_and_passes_its_audit(tmp_path: Path) -> None:
    output = run(sys.executable, "-m", "tools.wheels", "--outdir", tmp_path, "--twice")
    assert output.count("built twice, equal bytes") == len(TARGETS)
    for wheel in tmp_path.glob("*.whl"):
        names = zipfile.ZipFile(wheel).namelist()
        assert [name for name in names if name.endswith("sboms/nnburst.cdx.json")]
        assert [name for name in names if name.endswith("licenses/ziglang/LICENSE")]


@pytest.mark.campaign
@pytest.mark.skipif(NO_TOOLS, reason="extra wheels is not installed")
def test_wheel_passes_its_selftest_on_every_python_without_a_compiler(tmp_path: Path) -> None:
    run(sys.executable, "-m", "tools.wheels", "--outdir", tmp_path, "--only", "manylinux_2_17_x86")
    output = run(sys.executable, "-m", "tools.wheels.trial", tmp_path)
    assert output.count("passed") == len(pythons())


@pytest.mark.campaign
def test_library_of_one_row_is_built_beside_the_c_module(tmp_path: Path) -> None:
    for name in ("csrc", "setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    package = tmp_path / "src" / "nnburst"
    package.mkdir(parents=True)
    for module in ("__init__.py", "_version.py"):
        shutil.copy(ROOT / "src" / "nnburst" / module, package)
    for layer in ("capi", "executor"):  # whose headers the C module includes
        shutil.copytree(ROOT / "src" / "nnburst" / layer / "include", package / layer / "include")
    (tmp_path / "csrc" / "answer.c").write_text(
        '__attribute__((visibility("default"))) int answer(void) { return 42; }\n'
    )
    rows = tmp_path / "csrc" / "build.py"
    rows.write_text(rows.read_text().replace("\n# cffi's generated wrappers", LIBRARY))
    run(sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", cwd=tmp_path)
    library = package / "lib" / "libanswer.so"
    call = f"import ctypes; print(ctypes.CDLL({str(library)!r}).answer())"
    assert run(sys.executable, "-c", call).strip() == "42"
    assert (package / "_native.abi3.so").is_file()
