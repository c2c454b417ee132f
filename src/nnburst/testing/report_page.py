"""Writes a report as files, among them one HTML page that needs no other file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from nnburst.testing.report import FAILED, OPERATIONS, PASSED, SKIPPED, About, Report, TripleResult

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 72em; padding: 0 1em;
  color: #1b1b1b; background: #fff; }
h1, li, td.words { overflow-wrap: anywhere; }
td.count, td.word { white-space: nowrap; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; border-top: 2px solid #999;
  padding-top: .6em; }
p.verdict { font-size: 1.1em; padding: .6em .8em; border-left: .4em solid; background: #f4f4f4; }
p.good { border-color: #1a7f37; } p.bad { border-color: #c0201c; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0; }
th, td { border-bottom: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top; }
thead th { position: sticky; top: 0; background: #fff; font-size: .85em; }
td.passed { background: #d9f2df; } td.failed { background: #f9c9c7; font-weight: 600; }
td.skipped, td.none { color: #666; } td.count, th.count { text-align: right; }
ul { padding-left: 1.2em; } li { margin: .25em 0; } p.note { color: #555; }
code { font-size: .92em; }
"""
#: Short names of the types that the pack's cases are of.
SHORT: Final = {
    "TENSOR_FLOAT32": "float32",
    "TENSOR_FLOAT16": "float16",
    "TENSOR_INT32": "int32",
    "TENSOR_BOOL8": "bool8",
    "TENSOR_QUANT8_ASYMM": "quant8",
    "TENSOR_QUANT8_ASYMM_SIGNED": "quant8 signed",
    "TENSOR_QUANT8_SYMM": "quant8 symmetric",
    "TENSOR_QUANT8_SYMM_PER_CHANNEL": "quant8 by channel",
    "TENSOR_QUANT16_ASYMM": "quant16",
    "TENSOR_QUANT16_SYMM": "quant16 symmetric",
}


def page(report: Report) -> str:
    """The page of a report."""
    title = f"nnburst conformance: {report.about.driver}"
    parts = (
        f"<h1>{escape(title)}</h1>",
        _verdict(report),
        _failures(report),
        _matrix(report),
        _checks(report),
        _latencies(report),
        _skips(report),
        _left_out(report),
        _about(report),
        _capabilities(report.about),
    )
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def coverage(report: Report) -> str:
    """How much of NNAPI was executed, in words."""
    return f"{len(report.covered)} of {len(OPERATIONS)} operations"


def _verdict(report: Report) -> str:
    wrong = len(report.failures)
    passed = sum(t.passed for t in report.triples)
    checks = sum(c.outcome == "passed" for c in report.checks)
    if wrong:
        kind, words = "bad", f"does not conform: {wrong} findings"
    else:
        kind, words = "good", "conforms"
    return (
        f'<p class="verdict {kind}"><strong>{escape(report.about.driver)}</strong> {words}. '
        f"{passed} cases and {checks} checks passed; coverage: {coverage(report)}.</p>"
    )


def _failures(report: Report) -> str:
    if not report.failures:
        return ""
    lines = "".join(f"<li><code>{escape(line)}</code></li>" for line in report.failures)
    return f"<h2>Findings</h2>\n<ul>{lines}</ul>"


def _matrix(report: Report) -> str:
    matrix = report.matrix()
    if not matrix:
        return ""
    kinds = [kind for kind in SHORT if any(kind in row for row in matrix.values())]
    head = "".join(f'<th class="count">{SHORT[kind]}</th>' for kind in kinds)
    rows = []
    for operation, of_it in matrix.items():
        ranks = sorted({t.rank for t in report.triples if t.operation == operation and _tried(t)})
        cells = "".join(_cell(of_it.get(kind)) for kind in kinds)
        rows.append(f"<tr><th>{operation}</th><td>{', '.join(map(str, ranks))}</td>{cells}</tr>")
    return (
        '<h2>Operations by type</h2>\n<p class="note">Numbers of cases: passed, and failed or skipped '
        "if there are any. Each has three sets of inputs and is executed four times.</p>\n"
        f'<div class="wide"><table><thead><tr><th>operation</th><th>ranks</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _tried(triple: TripleResult) -> bool:
    return bool(triple.passed or triple.failures)


def _cell(counts: tuple[int, int, int] | None) -> str:
    if counts is None:
        return '<td class="none count"></td>'
    passed, failed, skipped = counts
    kind = "failed" if failed else "passed" if passed else "skipped"
    words = [f"{passed}"] if passed or not skipped else []
    words += [f"{failed} failed"] if failed else []
    words += [f"{skipped} skipped"] if skipped else []
    return f'<td class="{kind} count">{", ".join(words)}</td>'


def _checks(report: Report) -> str:
    if not report.checks:
        return ""
    found: dict[tuple[str, str], Counter[str]] = {}
    for check in report.checks:
        name = re.split(r"[\[(]", check.name)[0].strip().removeprefix("test_").replace("_", " ")
        found.setdefault((check.suite, name), Counter())[check.outcome] += 1
    rows = []
    for (suite, name), counts in found.items():
        kind = next((kind for kind in (FAILED, PASSED, SKIPPED) if counts[kind]), SKIPPED)
        words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
        rows.append(
            f"<tr><td>{escape(suite.removeprefix('test_').replace('_', ' '))}</td>"
            f'<td>{escape(name)}</td><td class="{kind} word">{words}</td></tr>'
        )
    return f"<h2>Contract, graphs and suites</h2>\n{_table(('suite', 'check', ''), rows)}"


def _latencies(report: Report) -> str:
    if not report.latencies:
        return ""
    rows = [
        f'<tr><td class="words">{escape(each.case)}</td><td class="count">{each.median_us:.0f}</td>'
        f'<td class="count">{each.slowest_us:.0f}</td></tr>'
        for each in report.latencies
    ]
    limit = report.max_latency_us
    note = "no limit was asked for" if limit is None else f"a median of {limit:g} µs is allowed"
    return (
        f'<h2>Round trips over a burst</h2>\n<p class="note">A finding of this machine, now; {note}.'
        f"</p>\n{_table(('case', 'median µs', 'slowest µs'), rows)}"
    )


def _skips(report: Report) -> str:
    rows = [
        f'<tr><td class="count">{times}</td><td class="words">{escape(why)}</td></tr>'
        for why, times in report.skips()
    ]
    if report.uncovered:
        names = ", ".join(report.uncovered)
        why = f"operations of which the driver supports no case: {names}"
        rows.append(
            f'<tr><td class="count">{len(report.uncovered)}</td><td class="words">{why}</td></tr>'
        )
    return f"<h2>Not tried</h2>\n{_table(('times', 'why'), rows)}" if rows else ""


def _left_out(report: Report) -> str:
    if not report.left_out:
        return ""
    lines = [f"<li>{name}: {escape(why)}</li>" for name, why in report.left_out.items()]
    return f"<h2>Operations without cases</h2>\n<ul>{''.join(lines)}</ul>"


def _about(report: Report) -> str:
    about = report.about
    facts = {
        "driver": f"{about.driver} ({about.name})",
        "version": about.version,
        "feature level": about.feature_level,
        "type": about.type,
        "profile": about.profile,
        "nnburst": about.nnburst,
        "date": about.date,
        "machine": about.machine,
        "duration": f"{about.seconds:.0f} s",
    }
    rows = [
        f'<tr><th>{name}</th><td class="words">{escape(value)}</td></tr>'
        for name, value in facts.items()
    ]
    return f"<h2>About this run</h2>\n{_table((), rows)}"


def _capabilities(about: About) -> str:
    """The driver's own figures of its speed: types with the same numbers in one row."""
    title = "<h2>Capabilities</h2>\n"
    if about.unknown_capabilities:
        return f"{title}<p>Unknown: {escape(about.unknown_capabilities)}</p>"
    alike: dict[tuple[float | None, float | None], list[str]] = {}
    for each in about.capabilities:
        alike.setdefault((each.exec_time, each.power_usage), []).append(each.what)
    rows = [
        f'<tr><td class="words">{escape(", ".join(names))}</td>'
        + "".join(f'<td class="count">{_ratio(number)}</td>' for number in numbers)
        + "</tr>"
        for numbers, names in alike.items()
    ]
    note = '<p class="note">As the driver reports them: ratios to the reference executor.</p>\n'
    return f"{title}{note}{_table(('operands', 'time', 'power'), rows)}"


def _ratio(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.3g}"


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{name}</th>" for name in head)
    top = f"<thead><tr>{cells}</tr></thead>" if head else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(rows)}</tbody></table></div>'


def write(report: Report, folder: Path) -> None:
    """Write a report as report.json and report.html.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (folder / "report.html").write_text(page(report), encoding="utf-8")
