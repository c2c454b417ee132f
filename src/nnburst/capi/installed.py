"""Finds the header and the library of this installation, for compilers and linkers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

INCLUDE: Final = Path(__file__).resolve().parent / "include"
LIBRARY_FOLDER: Final = Path(__file__).resolve().parent / "lib"
PKG_CONFIG_FOLDER: Final = Path(__file__).resolve().parent / "pkgconfig"
LIBRARY: Final = LIBRARY_FOLDER / "libneuralnetworks.so"
CLIENT_LIBRARY: Final = LIBRARY_FOLDER / "libnnburst.so"
#: The plugin execution provider for onnxruntime.
PROVIDER_LIBRARY: Final = LIBRARY_FOLDER / "libonnxruntime_ep_nnburst.so"
#: The external delegate for LiteRT.
DELEGATE_LIBRARY: Final = LIBRARY_FOLDER / "libnnburst_delegate.so"

#: Flags that no shell splits or expands; within a word `~` is itself, and letters are those of any language.
_SAFE: Final = re.compile(r"[\w@%+=:,./~-]+")


def for_a_shell(*flags: str) -> str:
    """Flags in one line; only those that a shell would split or expand are quoted.

    A plain `$(…)` keeps quotes as characters, so flags without need have none.
    """
    return " ".join(flag if _SAFE.fullmatch(flag) else shlex.quote(flag) for flag in flags)


def cflags() -> str:
    """The compiler flags for the headers; see `for_a_shell`."""
    return for_a_shell(f"-I{INCLUDE}")


def libs(*, client: bool = False) -> str:
    """The linker flags for the library, with its folder as a run path; see `for_a_shell`.

    Args:
        client: whether to link the client of served networks instead of NNAPI's interface.
    """
    name = "nnburst" if client else "neuralnetworks"
    return for_a_shell(f"-L{LIBRARY_FOLDER}", f"-Wl,-rpath,{LIBRARY_FOLDER}", f"-l{name}")
