"""Which program is this Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def interpreter() -> str:
    """The program to start processes of this package with: the Python that runs here.

    That is `sys.executable`, unless another program has Python in it. Python then takes the first `python3`
    on PATH for itself, which may be of another version; so this is the Python of the same prefix, if there is
    one.
    """
    if sys.executable and _is_own(sys.executable):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for prefix in (sys.exec_prefix, sys.base_exec_prefix):
        found = Path(prefix, "bin", name)
        if os.access(found, os.X_OK):
            return str(found)
    return sys.executable


def _is_own(program: str) -> bool:
    try:
        return Path(program).samefile("/proc/self/exe")
    except OSError:
        return False  # there is no such file, or no /proc: the prefix has the same Python
