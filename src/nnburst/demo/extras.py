"""What the demos of real networks find in packages that are not part of nnburst."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nnburst.hal.errors import NnburstError


def file_of(package: str, *parts: str, install: str) -> Path:
    """A file that an installed package brings along; the package is not imported.

    Args:
        package: name to import it by.
        parts: folders and name below it.
        install: how a user gets it.

    Raises:
        NnburstError: it is not there; the message names what to install.
    """
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # of a package around it
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise NnburstError(f"{'/'.join((package, *parts))} is not there; to get it: {install}")
