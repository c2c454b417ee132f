"""What a driver is started with: written by `nnburst.launch` and `nnburst serve`, not meant to be typed."""

from __future__ import annotations

import getopt
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: What follows an option is its value, if it ends in "=".
_OPTIONS: Final = (
    "executor=", "name=", "fd=", "serve=", "cpus=", "extension=", "any-user", "until-stdin-ends",
    "share-weights=", "front=", "json=",
)  # fmt: skip
_SHARING: Final = ("user", "all", "off")


class Options:
    """The words of the command line. argparse would take 5 ms of each start.

    Attributes:
        executor: its name.
        name: of the device; the executor's unless given.
        fd: connected socket of the only client; -1 if `serve` is given.
        serve: name or path to listen at; empty if `fd` is given.
        cpus: cores to run on.
        extensions: vendor extensions to have beside those of entry points, each as `module:attribute`.
        any_user: serve clients of other users, too.
        until_stdin_ends: end with standard input.
        share_weights: "user", "all" or "off"; see `nnburst serve --help`.
        front: words of a front to serve by, too, as JSON; empty for none.
        json: file to write to where the driver listens.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Read `words`.

        Raises:
            SystemExit: they are not those of a driver; the message names the one that is wrong.
        """
        try:
            pairs, rest = getopt.getopt(list(words), "", list(_OPTIONS))
            given = {option.removeprefix("--"): value for option, value in pairs}
            self.executor = given.get("executor", "")
            self.name = given.get("name", "") or self.executor
            self.fd = _number("fd", given.get("fd", "-1"))
            self.serve = given.get("serve", "")
            self.cpus = [_number("cpus", cpu) for cpu in given.get("cpus", "").split(",") if cpu]
            self.extensions = [value for option, value in pairs if option == "--extension"]
            self.any_user = "any-user" in given
            self.until_stdin_ends = "until-stdin-ends" in given
            self.share_weights = given.get("share-weights", _SHARING[0])
            self.front = given.get("front", "")
            self.json = Path(given["json"]) if "json" in given else None
            self._check(rest)
        except (getopt.GetoptError, ValueError) as error:
            raise SystemExit(f"python -m nnburst.driver: {error}") from None

    def _check(self, rest: Sequence[str]) -> None:
        if rest:
            raise ValueError(f"{rest[0]!r} is not an option")
        if not self.executor:
            raise ValueError("--executor is missing")
        if (self.fd < 0) == (not self.serve):
            raise ValueError("expected either --fd or --serve")
        if self.share_weights not in _SHARING:
            raise ValueError(f"--share-weights {self.share_weights}, expected one of {_SHARING}")


def _number(option: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"--{option} {word}: expected a number") from None
