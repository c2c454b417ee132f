"""The model of the ring and of waiting: every state of its short form, and each seeded bug is found."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "csrc" / "spin" / "run.sh"

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(
        not SCRIPT.exists() or shutil.which("spin") is None or shutil.which("gcc") is None,
        reason="needs spin (Debian: spin), gcc and the sources; `make spin` installs it",
    ),
]


def test_no_state_of_the_model_breaks_a_promise_and_every_seeded_bug_is_found() -> None:
    done = subprocess.run(
        [SCRIPT, "short"], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"^(\w+) +\d+ states  (.*)$", done.stdout, re.MULTILINE)
    seeded = [defs for _, defs in outcomes if re.search(r"NO_|LATE_|ONE_|TWO_", defs)]
    assert {outcome for outcome, defs in outcomes if defs in seeded} == {"found"}
    assert {outcome for outcome, defs in outcomes if defs not in seeded} == {"holds"}
    assert any("NO_FENCE" in defs for defs in seeded)
    assert any("NO_WAKE" in defs for defs in seeded)
    assert any("TWO_STEPS" in defs for defs in seeded)
