"""PyTorch's NNAPI backend, as Debian ships it, computes by this library what it computes by itself."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capi.conftest import Run
from nnburst.capi import installed

PYTHON = Path("/usr/bin/python3")
CASES = Path(__file__).with_name("pytorch_cases.py")
NEEDED = ("nnburst", "cffi", "_cffi_backend", "msgspec", "posix_ipc")
ABOUT = "import importlib.util as u, sys; print(*sys.version_info[:2], u.find_spec('torch') is not None)"


def folders() -> list[str]:
    """Where nnburst and what it needs are, but for numpy, of which torch wants its own."""
    found: dict[str, None] = {}
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        found[str(origin.parents[1] if origin.stem == "__init__" else origin.parent)] = None
    return list(found)


@pytest.fixture(scope="module")
def python() -> Path:
    """The system's Python with torch."""
    if not PYTHON.exists() or not installed.LIBRARY.is_file():
        pytest.skip(f"no {PYTHON}, or this nnburst was built without its C interface")
    about = subprocess.run([PYTHON, "-c", ABOUT], capture_output=True, text=True, check=True)
    version, has_torch = about.stdout.split()[:2], about.stdout.split()[2]
    if has_torch != "True":
        pytest.skip(f"{PYTHON} has no torch (Debian's package python3-torch)")
    if version != [str(part) for part in sys.version_info[:2]]:
        pytest.skip(f"{PYTHON} is Python {'.'.join(version)}, for which nothing was installed")
    return PYTHON


def test_its_operations_and_networks_compute_what_torch_does(
    python: Path, run_compiled: Run
) -> None:
    libraries = os.pathsep.join(
        filter(None, (str(installed.LIBRARY.parent), os.environ.get("LD_LIBRARY_PATH")))
    )
    done = run_compiled(python, str(CASES), *folders(), LD_LIBRARY_PATH=libraries)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "nnburst:" not in done.stderr, "objects that are freed late are nothing to report"
    found = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert [name for name, parts in found.items() if not float(parts) <= 1] == []
    assert len(found) == 47
    assert {"mobilenet", "perceptron", "quantized conv2d", "prelu", "slice"} <= found.keys()
