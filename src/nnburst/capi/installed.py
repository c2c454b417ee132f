"""Finds the header and the library of this installation, for compilers and linkers."""

from __future__ import annotations

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


def cflags() -> str:
    """The compiler flags for the headers, quoted for a shell."""
    return shlex.quote(f"-I{INCLUDE}")


def libs(*, client: bool = False) -> str:
    """The linker flags for the library, with its folder as a run path, quoted for a shell.

    Args:
        client: whether to link the client of served networks instead of NNAPI's interface.
    """
    name = "nnburst" if client else "neuralnetworks"
    return shlex.join([f"-L{LIBRARY_FOLDER}", f"-Wl,-rpath,{LIBRARY_FOLDER}", f"-l{name}"])
