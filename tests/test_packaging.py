"""The shipped sdist and wheel work without the checkout: they are built, installed and tried."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: What the installed wheel has to pass: a round trip in every way, and the commands. What packaging can break
#: (a module, a data file or an entry point that is missing) these miss, too.
TRIED = ("cli", "client/test_every_way.py")
#: What an installation brings along without extras.
NEEDED = {"numpy", "cffi", "msgspec", "posix_ipc"}


def run(*command: object, cwd: Path) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    built = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__")
    shutil.copytree(ROOT, source, ignore=built)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=source)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment with the wheel; its dependencies are this environment's."""
    environment = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", environment, cwd=dist)
    python = environment / "bin" / "python"
    wheel = next(dist.glob("*.whl"))
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=dist)
    packages = next(environment.glob("lib/python*/site-packages"))
    # A path named in a .pth file is searched, but .pth files in it (an editable nnburst) are not.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def test_project_asks_for_four_packages_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.match(r"[\w.-]+", need)[0] for need in project["dependencies"]} == NEEDED  # type: ignore[index]


@pytest.mark.campaign
def test_wheel_is_for_the_stable_abi(dist: Path) -> None:
    names = [path.name for path in dist.glob("*.whl")]
    assert len(names) == 1
    assert "-cp311-abi3-linux_" in names[0]


@pytest.mark.campaign
def test_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"nnburst"}
    header = "executor/include/nnburst/executor.h"
    for needed in ("_native.abi3.so", "_native.pyi", "py.typed", "demo/data/quant8.npz", header):
        assert f"nnburst/{needed}" in names
    assert any(name.endswith("licenses/NOTICE") for name in names)


@pytest.mark.campaign
def test_wheel_holds_the_libraries_for_other_programs_and_their_headers(dist: Path) -> None:
    rows = runpy.run_path(str(ROOT / "csrc" / "build.py"))["LIBRARIES"]
    libraries = {row.path for row in rows}
    for name in (
        "libneuralnetworks",
        "libnnburst",
        "libnnburst_delegate",
        "libonnxruntime_ep_nnburst",
    ):
        assert f"capi/lib/{name}.so" in libraries
    package = ROOT / "src" / "nnburst"
    headers = {str(path.relative_to(package)) for path in package.glob("*/include/**/*.h*")}
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        shipped = {name.removeprefix("nnburst/") for name in wheel.namelist()}
        assert libraries | headers <= shipped
        assert all(wheel.read(f"nnburst/{path}")[:4] == b"\x7fELF" for path in libraries)


@pytest.mark.campaign
def test_wheel_needs_four_packages_and_no_more(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        needed = Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist", [])
    core = [need for need in needed if "extra ==" not in need]
    assert {re.match(r"[\w.-]+", need)[0] for need in core} == NEEDED  # type: ignore[index]
    assert not [need for need in needed if "://" in need], "from an index, and by name only"


@pytest.mark.campaign
def test_sdist_holds_the_c_headers_and_the_tests(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for folder, suffix in (("csrc", "*.[ch]"), ("csrc/tests", "*"), ("tests", "**/*.py")):
        shipped = {
            str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(suffix) if path.is_file()
        }
        assert sorted(name for name in shipped - names if "__pycache__" not in name) == []
    assert {"Makefile", "LICENSE", "NOTICE", "tools/train_digits.py"} <= names


@pytest.mark.campaign
def test_installed_wheel_passes_the_tests_of_commands_and_round_trips(
    dist: Path, installed: Path, tmp_path: Path
) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    shutil.rmtree(unpacked / "src")  # what is tested is the wheel
    where = run(installed, "-c", "import nnburst; print(nnburst.__file__)", cwd=unpacked)
    assert Path(where.strip()).is_relative_to(installed.parent.parent)
    tried = [unpacked / "tests" / name for name in TRIED]
    assert " passed" in run(installed, "-m", "pytest", "-q", *tried, cwd=unpacked)


@pytest.mark.campaign
def test_installed_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    command = installed.parent / "nnburst"
    output = run(command, "demo", "--rounds", "1", "--json", "demo.json", cwd=tmp_path)
    assert "burst" in output
    assert (tmp_path / "demo.json").is_file()


@pytest.mark.campaign
@pytest.mark.parametrize("flag", ["-D_FORTIFY_SOURCE=3", "-Wpedantic", "-Wcast-qual"])
def test_sdist_builds_with_flags_of_a_distribution(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    monkeypatch.setenv("CFLAGS", flag)
    run(sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", cwd=source)
