"""Types of options: what cannot be meant is wrong usage, refused before any work is done."""

from __future__ import annotations

import argparse
import os
import re


def at_least_one(text: str) -> int:
    """A count from 1 on."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 1 or more")
    return count


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
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
