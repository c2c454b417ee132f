"""Whether this process may use extensions: decided once, from a file that names programs.

Without the file every program may. With it, a program may if the file has the path of its executable, of the
script that Python runs, or the dotted name of the module that `python -m` runs.

DEVIATES: RT:X4: on Linux the place of a program shows nothing, as there are no images of a vendor or product,
and no package service; so the list alone decides, and only if an administrator has written one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nnburst.hal.environment import EXTENSIONS_ALLOWLIST
from nnburst.hal.errors import InvalidArgument
from nnburst.runtime.extensions.allowlist import Allowlist

#: The executable of this process.
_EXECUTABLE: Final = "/proc/self/exe"


@functools.cache
def refusal() -> str | None:
    """Why this process may not use extensions; None if it may. Asked once.

    Raises:
        InvalidArgument: the file that `NNBURST_EXTENSIONS_ALLOWLIST` names cannot be read.
    """
    path = EXTENSIONS_ALLOWLIST.read()
    try:
        entries = path.read_text().splitlines()
    except FileNotFoundError as error:
        if not EXTENSIONS_ALLOWLIST.is_set:
            return None
        raise InvalidArgument(f"{EXTENSIONS_ALLOWLIST.name}: {path}: {error.strerror}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"extensions: {path} cannot be read: {error}") from None
    allowlist = Allowlist(entries, str(path))
    names = list(dict.fromkeys(_names()))
    if any(name in allowlist for name in names):
        return None
    return f"{path} does not list {' or '.join(names)}"


def check_permission(what: str) -> None:
    """Refuse extensions if this process may not use them (RT:X6).

    Args:
        what: that needs them, for the message.

    Raises:
        InvalidArgument: it may not; BAD_DATA.
    """
    why = refusal()
    if why is not None:
        raise InvalidArgument(f"{what}: this program may not use extensions: {why}")


def _names() -> Iterator[str]:
    """What this program may be listed as."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and "." in spec.name:
        yield spec.name.removesuffix(".__main__")
    script = getattr(main, "__file__", None)
    if script is not None:
        yield str(Path(script).resolve())
    try:
        yield str(Path(_EXECUTABLE).readlink())
    except OSError:
        return
