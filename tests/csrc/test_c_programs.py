"""The C tests under sanitizers, in short form; `make asan` and `make tsan` run the long ones."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "csrc" / "tests" / "run.sh"


@pytest.mark.parametrize(("sanitizer", "count"), [("address", 2_000_000), ("thread", 100_000)])
def test_ring_keeps_its_promises_under_a_sanitizer(sanitizer: str, count: int) -> None:
    if not SCRIPT.exists():
        pytest.skip("the C sources are not beside the tests")
    done = subprocess.run(
        [SCRIPT, sanitizer, str(count)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runtime error" not in done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr
