"""`nnburst fmq`: lists this user's message queues that have a name.

A name is removed when both programs have the queue, or when the program that made it ends. If that program is
killed, its name stays and is stale; `--remove` removes stale names. Names in use are never touched.
"""

from __future__ import annotations

import argparse

import msgspec

from nnburst.cli.options import Subparsers
from nnburst.cli.output import add_json_option, table, text_for_people, write_json
from nnburst.fmq import list_named_queues, remove_stale_names


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "fmq", help="message queues that have a name, and stale names", description=__doc__
    )
    parser.add_argument(
        "prefix", nargs="?", default="/", metavar="PREFIX", help="only names that begin so"
    )
    parser.add_argument("--remove", action="store_true", help="take stale names away")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List the queues; with `--remove`, remove stale names and list the removed ones."""
    found = remove_stale_names(args.prefix) if args.remove else list_named_queues(args.prefix)
    columns = ("name", "maker", "state", "flavour", "element", "capacity")
    rows = [
        (
            queue.name,
            queue.pid,
            "removed" if args.remove else "stale" if queue.is_stale else "in use",
            queue.flavor.name.partition("_")[0].lower(),
            queue.quantum,
            queue.capacity,
        )
        for queue in found
    ]
    with text_for_people(args.json):
        table("message queues with a name", columns, rows)
    write_json(args.json, {"removed" if args.remove else "queues": msgspec.to_builtins(found)})
    return 0
