"""Reports how often devices have executed, to a folder that `NNBURST_EXECUTION_COUNTS` names.

A program that is under test ends without a word, or crashes: the file `PID.json` is written anew each time
that it frees a compilation.
"""

from __future__ import annotations

import json
import os
from typing import Final

from nnburst.hal.environment import EXECUTION_COUNTS
from nnburst.runtime.execution.counts import EXECUTIONS

_folder: Final = EXECUTION_COUNTS.read() if EXECUTION_COUNTS.name in os.environ else None


def write_counts() -> None:
    """Write them, if that is wanted."""
    if _folder is not None:
        path = _folder / f"{os.getpid()}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(EXECUTIONS.as_json()), encoding="utf-8")
        partial.rename(path)
