"""How a broken rule travels: raised where it is found, located where the place is known."""

from __future__ import annotations

import re

from nnburst.hal.errors import InvalidArgument

_RULE = re.compile(r"validation:([A-Z]\d+): (.*)", re.DOTALL)


class Broken(Exception):
    """A rule is broken; the caller that has the place turns it into InvalidArgument."""

    def __init__(self, rule: str, message: str) -> None:
        """Keep the rule's id and what is wrong."""
        super().__init__(rule, message)
        self.rule = rule
        self.message = message

    @classmethod
    def by(cls, error: InvalidArgument, rule: str) -> Broken:
        """The message of `error`, under the rule that it names itself or else under `rule`."""
        named = _RULE.fullmatch(str(error))
        return cls(*named.groups()) if named else cls(rule, str(error))

    def at(self, where: str) -> InvalidArgument:
        """The error for the caller."""
        return InvalidArgument(f"validation:{self.rule}: {where}: {self.message}")


def check_range(rule: str, name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer outside [low, high] (the original's structs cannot even hold one)."""
    if not low <= value <= high:
        raise Broken(rule, f"{name} is {value}, expected {low} to {high}")
