"""`nnburst bench compare`: compares two runs of a benchmark.

Each case that both files have is judged by its blocks. The cases of one run are measured in turns, so
`--relative-to CASE` compares their ratios to one case, block by block, which cancels a change in the
machine's speed. Exit status: 0 the same or better, 1 worse, 2 no verdict.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from nnburst.cli.options import Subparsers, above_zero
from nnburst.cli.output import add_json_option, table, text_for_people, write_json
from nnburst.hal.errors import InvalidArgument

Blocks = Mapping[str, list[float]]


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "compare", help="what differs between two runs of a benchmark", description=__doc__
    )
    parser.add_argument("before", type=Path, metavar="A.json", help="figures of an older run")
    parser.add_argument("now", type=Path, metavar="B.json", help="figures of a newer run")
    parser.add_argument(
        "--least",
        type=above_zero,
        default=5.0,
        metavar="PERCENT",
        help="the least difference that matters (default: %(default)s)",
    )
    parser.add_argument("--relative-to", metavar="CASE", help="compare ratios to this case")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the files, print the verdicts, and write the JSON."""
    from nnburst.bench.verdict import compare, exit_status

    paths = (args.before, args.now)
    (before, now), doubts = zip(*(_read(path, args.relative_to) for path in paths), strict=True)
    shared = [name for name in before if name in now]
    if not shared:
        raise InvalidArgument(f"{args.before} and {args.now}: no case with blocks in both")
    found = [compare(name, before[name], now[name], args.least / 100) for name in shared]
    with text_for_people(args.json):
        table(
            f"{args.now} beside {args.before}",
            ["case", "before", "now", "change", "spread", "verdict"],
            [
                [
                    c.name,
                    _shown(c.before, ".4g"),
                    _shown(c.now, ".4g"),
                    _shown(c.effect, "+.1%"),
                    _shown(c.spread, ".0%"),
                    c.verdict,
                ]
                for c in found
            ],
        )
        for comparison in found:
            if comparison.why:
                print(f"{comparison.name}: no verdict: {comparison.why}")
        for path, found_doubts in zip(paths, doubts, strict=True):
            for doubt in found_doubts:
                print(f"{path}: not quiet: {doubt}")
    status = exit_status([c.verdict for c in found])
    cases = [
        {"case": c["name"], **{key: c[key] for key in ("before", "now", "verdict", "why")}}
        for c in (comparison.as_json() for comparison in found)
    ]
    write_json(args.json, {"cases": cases, "exit_status": status})
    return status


def _shown(figure: float, form: str) -> str:
    """A figure in a format; "-" for NaN."""
    return "-" if math.isnan(figure) else format(figure, form)


class _Conditions(msgspec.Struct, frozen=True):
    doubts: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True):
    """The part of a benchmark's --json beside its cases."""

    conditions: _Conditions = _Conditions()


_decode_content = msgspec.json.Decoder(dict[str, Any]).decode
_decode_file = msgspec.json.Decoder(_File).decode


def _read(path: Path, relative_to: str | None) -> tuple[Blocks, tuple[str, ...]]:
    """The blocks of a file, and the doubts whether the machine was quiet."""
    text = path.read_bytes()
    try:
        doubts = _decode_file(text).conditions.doubts
        return blocks_of(_decode_content(text), relative_to), doubts
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"{path}: {error}") from None


def blocks_of(content: Any, relative_to: str | None = None) -> Blocks:  # noqa: ANN401 - any JSON
    """Blocks of every case in a file, by name; with `relative_to`, their ratios to that case, block by block.

    Raises:
        InvalidArgument: there is no case `relative_to` with as many blocks, two cases have one name, or
            blocks are no numbers above 0.
    """
    found: dict[str, list[float]] = {}
    for name, blocks in _cases(content, ""):
        if name in found:
            raise InvalidArgument(f"two cases named {name!r}, expected names that differ")
        found[name] = blocks
    if relative_to is None:
        return found
    if relative_to not in found:
        raise InvalidArgument(f"--relative-to: {relative_to!r}, expected one of {sorted(found)}")
    base = found[relative_to]
    return {
        name: [block / by for block, by in zip(blocks, base, strict=True)]
        for name, blocks in found.items()
        if name != relative_to and len(blocks) == len(base)
    }


def _cases(content: Any, prefix: str) -> Iterator[tuple[str, list[float]]]:  # noqa: ANN401
    """Find each object with a name and blocks, at any depth."""
    if isinstance(content, list):
        for entry in content:
            yield from _cases(entry, prefix)
    elif isinstance(content, dict):
        network = content.get("network")
        inner = f"{network}: " if isinstance(network, str) else prefix
        blocks = content.get("blocks_ns")
        if isinstance(blocks, list) and "name" in content:
            name = f"{inner}{content['name']}"
            if not all(isinstance(block, int | float) and block > 0 for block in blocks):
                raise InvalidArgument(f"blocks of {name!r}: {blocks}, expected numbers above 0")
            yield name, [float(block) for block in blocks]
        for entry in content.values():
            if isinstance(entry, dict | list):
                yield from _cases(entry, inner)
