"""Writes docs/environment.md from the registry of variables: `python tools/environment_page.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nnburst.hal.environment import Variable, variables

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

_HEAD: Final = """\
# Environment variables

`nnburst env` prints the value of each and whether it comes from the environment. A value that breaks the rule
is refused by the name of its variable; a name with our prefix that is not in this table is warned of. This
page is written by `tools/environment_page.py` from `src/nnburst/hal/environment.py`.

| variable | expected | default | read by | what it does |
|---|---|---|---|---|
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
"""


def page() -> str:
    """The page's text."""
    return _HEAD + "".join(map(_row, variables())) + _FOLDERS


def _row(variable: Variable[object]) -> str:
    default = f"`{variable.default}`" if variable.default is not None else ""
    more = f" ([more]({variable.page}))" if variable.page else ""
    cells = (
        f"`{variable.name}`",
        variable.expected,
        default,
        variable.reader,
        variable.what + more,
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
