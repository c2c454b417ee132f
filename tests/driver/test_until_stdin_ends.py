"""A service with `--until-stdin-ends` ends with its standard input, however the other program has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import nnburst
from nnburst.testing.faults.activities import check_sum, sum_model, summands

#: Seconds for what takes a moment.
PATIENCE = 60


def test_service_ends_with_standard_input(tmp_path: Path) -> None:
    address = str(tmp_path / "driver")
    command = [sys.executable, "-m", "nnburst", "serve", address, "--until-stdin-ends"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert "listens at" in process.stdout.readline()
        process.stdin.write("what is written is not looked at\n")
        process.stdin.flush()
        with nnburst.connect(address) as device, device.prepare(sum_model()) as prepared:
            result = prepared.execute(summands(3))
            check_sum(np.asarray(result.outputs[0]), 3)
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
    assert not Path(address).exists()
