"""Where a user's settings and what drivers remember for that user lie (XDG base directories)."""

from __future__ import annotations

import os
from pathlib import Path

from nnburst.hal.errors import GeneralFailure


def config_directory() -> Path:
    """What a person wrote: `$XDG_CONFIG_HOME/nnburst`, or `~/.config/nnburst`."""
    return _directory("XDG_CONFIG_HOME", ".config")


def cache_directory() -> Path:
    """What may be lost at any time: `$XDG_CACHE_HOME/nnburst`, or `~/.cache/nnburst`."""
    return _directory("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """What a program wrote: `$XDG_STATE_HOME/nnburst`, or `~/.local/state/nnburst`."""
    return _directory("XDG_STATE_HOME", ".local/state")


def _directory(variable: str, below_home: str) -> Path:
    given = os.environ.get(variable, "")
    if given.startswith("/"):  # XDG: others are ignored
        return Path(given, "nnburst")
    try:
        return Path.home() / below_home / "nnburst"
    except RuntimeError as error:
        raise GeneralFailure(
            f"{variable} is not set, and the home directory is unknown: {error}"
        ) from error
