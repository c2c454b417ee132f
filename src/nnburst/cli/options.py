"""Types of options: what cannot be meant is wrong usage, refused before any work is done."""

from __future__ import annotations

import argparse
import math
import os
import re
from typing import TypeAlias

#: Where a command adds its parser (argparse gives the type no public name).
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def at_least_one(text: str) -> int:
    """A count from 1 on."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 1 or more")
    return count


def zero_or_more(text: str) -> int:
    """A number that may be 0, such as a seed."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 0 or more")
    return number


def above_zero(text: str) -> float:
    """A finite number above 0: a duration, in the unit that the help names."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number above 0")
    return number


def not_negative(text: str) -> float:
    """A finite number that may be 0: a duration, in the unit that the help names."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 0 or more")
    return number


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def cores(text: str) -> str:
    """Cores that this process may run on, comma-separated."""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        wanted = {int(core) for core in text.split(",")}
    except ValueError:
        wanted = set()
    if not wanted or not wanted <= set(allowed):
        raise argparse.ArgumentTypeError(f"{text!r}, expected some of {allowed}, comma-separated")
    return ",".join(map(str, sorted(wanted)))
