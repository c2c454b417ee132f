"""`nnburst env`: lists nnburst's environment variables, their values and where each value comes from."""

from __future__ import annotations

import argparse
import os
import sys

from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, printable, table, write_json
from nnburst.hal.environment import VLOG, Variable, unknown_names, unknown_tags, variables
from nnburst.hal.errors import InvalidArgument


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "env",
        help="list environment variables and their values",
        description=f"{__doc__} The exit status is 1 if a value is refused or a name is unknown.",
    )
    parser.add_argument(
        "--all", action="store_true", help="also those for tests and builds of nnburst itself"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List the variables, and then what is wrong with those that are set."""
    problems = unknown_names()
    facts = []
    for variable in variables():
        if variable.is_set:
            problems += _refusal(variable)
        if not (variable.is_for_users or variable.is_set or args.all):
            continue
        facts.append(
            {
                "name": variable.name,
                "value": os.environ.get(variable.name, variable.default),
                "origin": "environment" if variable.is_set else "default",
                "expected": variable.expected,
                "reader": variable.reader,
                "what": variable.what,
            }
        )
    if str(args.json) != "-":
        rows = [(f["name"], f["value"] or "", f["origin"]) for f in facts]
        table("environment variables", ("variable", "value", "origin"), rows)
    write_json(args.json, {"variables": facts, "problems": problems})
    for problem in problems:
        print(f"nnburst: {printable(problem)}", file=sys.stderr)
    return 1 if problems else 0


def _refusal(variable: Variable[object]) -> list[str]:
    try:
        variable.read()
    except InvalidArgument as error:
        return [str(error)]
    return unknown_tags(VLOG.read()) if variable.name == VLOG.name else []
