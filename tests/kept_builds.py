"""Keeps what tests compile under build/, until a file changes that it is made from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def kept_folder(name: str, sources: Iterable[Path]) -> Path:
    """A folder for what the C compiler makes of these files; those of other states of them are removed.

    Its name is a hash of the compiler's version and of the files. Options are the caller's to keep apart.
    """
    compiler = os.environ.get("CC", "gcc")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60)
    state = hashlib.sha256(version.stdout)
    for path in sorted(sources):
        state.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    kept = ROOT / "build" / name / state.hexdigest()[:16]
    for older in set(kept.parent.glob("*")) - {kept}:
        shutil.rmtree(older, ignore_errors=True)
    return kept
