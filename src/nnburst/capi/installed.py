"""Where header and library of this installation are, for compilers and linkers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

INCLUDE: Final = Path(__file__).resolve().parent / "include"
LIBRARY_FOLDER: Final = Path(__file__).resolve().parent / "lib"
PKG_CONFIG_FOLDER: Final = Path(__file__).resolve().parent / "pkgconfig"
LIBRARY: Final = LIBRARY_FOLDER / "libneuralnetworks.so"


def cflags() -> str:
    """What a compiler needs."""
    return f"-I{INCLUDE}"


def libs() -> str:
    """What a linker needs; the program finds the library where it is."""
    return f"-L{LIBRARY_FOLDER} -Wl,-rpath,{LIBRARY_FOLDER} -lneuralnetworks"
