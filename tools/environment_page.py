"""Writes docs/environment.md from the registry of variables: `python tools/environment_page.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nnburst.hal.environment import Variable, variables

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

_HEAD: Final = """\
# Environment variables

`nnburst env` prints the value of each and whether it comes from the environment. A value that breaks the rule
is refused by the name of its variable; a name with our prefix that is not in this table is warned of. A
setuid program ignores them all ([more](c_interface.md)). This page is written by `tools/environment_page.py`
from `src/nnburst/hal/environment.py`.

"""
_COLUMNS: Final = """
| variable | what it does | expected, and the default | read by |
|---|---|---|---|
"""
_INTERNAL: Final = """
## For tests and builds of nnburst itself

`nnburst env --all` prints these, too.
"""

_FOLDERS: Final = """
Folders are found by the XDG base directory specification:

| variable | default | read by | what lies there |
|---|---|---|---|
| `XDG_RUNTIME_DIR` | `/tmp/nnburst-UID` | clients, drivers | `nnburst/`: sockets of this user's drivers |
| `XDG_STATE_HOME` | `~/.local/state` | drivers | what they remember for their user: \
`nnburst/compilation_cache.key`, and `nnburst/capabilities/DEVICE.json` as measured |
| `XDG_CONFIG_HOME` | `~/.config` | drivers, at start | `nnburst/capabilities/DEVICE.json`, \
which counts more than what was measured |
| `XDG_CACHE_HOME` | `~/.cache` | `nnburst.compile` | what may be lost: `nnburst/devices`, \
what engines report of themselves, and `nnburst/costs`, what networks took on them |
"""


def page() -> str:
    """The page's text."""
    users, others = ([v for v in variables() if v.is_for_users is each] for each in (True, False))
    rows = [_COLUMNS + "".join(map(_row, each)) for each in (users, others)]
    return _HEAD + rows[0] + _FOLDERS + _INTERNAL + rows[1]


def _row(variable: Variable[object]) -> str:
    default = f"; `{variable.default}`" if variable.default else ""
    more = f" ([more]({variable.page}))" if variable.page else ""
    cells = (
        f"`{variable.name}`",
        variable.what + more,
        variable.expected + default,
        variable.reader,
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
