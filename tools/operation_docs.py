"""The page of all operations, made from the registry that also validates and runs them.

python tools/operation_docs.py docs/operations.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import nnburst.executor.operations
from nnburst.executor.graph.operation import REGISTRY, OperationDefinition
from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.signature import REQUIRED, Form, Signature, Slot

#: The folder of declarations and kernels.
EXECUTORS: Final = Path(nnburst.executor.operations.__path__[0]).parent

_LEVELS: Final[Mapping[FeatureLevel, str]] = {
    FeatureLevel.V1_0: "1.0",
    FeatureLevel.V1_1: "1.1",
    FeatureLevel.V1_2: "1.2",
    FeatureLevel.V1_3: "1.3",
    FeatureLevel.AIDL_V1: "feature level 5",
    FeatureLevel.AIDL_V2: "feature level 6",
    FeatureLevel.AIDL_V3: "feature level 7",
    FeatureLevel.AIDL_V4: "feature level 8",
}

_INTRODUCTION: Final = """\
# Operations

This page is made from the registry by `python tools/operation_docs.py docs/operations.md`;
change an operation's signature, not the page.

An operation takes its inputs in the order of its table. A type is an operand type of NNAPI, or a
letter that the types table resolves, row by row, with the version that introduced the combination.
Operands that are *data* may lie in memory that another process writes to; *control* operands steer
shapes and are read before memory is given out; of *index* operands a private copy is used. Trailing
operands with a default may be left out. An operation that does not accept empty tensors fails if
an extent is 0 at execution.
"""

_NOT_FINITE: Final = """\
## Infinities and NaN

NNAPI leaves open what becomes of numbers that are not finite, and its own CPU implementation differs
between operations. The reference executor, which is also the CPU behind `nnburst.compile`, does what
that one does. Engines do what they do, which may change with their version, so the same model may give
one or the other as its parts are placed.

"""
_NOT_FINITE_ROWS: Final = (
    (
        "ADD, SUB, MUL, DIV, convolutions, FULLY_CONNECTED and pools, with any activation, NONE too",
        "±infinity becomes ±3.4e38, the largest number, or a smaller bound of the activation; NaN stays",
        "±infinity stays unless a bound of the activation limits it; NaN stays. LiteRT's convolutions"
        " may give NaN for infinity",
    ),
    (
        "RELU, RELU1, RELU6 as operations",
        "likewise, but NaN becomes the lower bound",
        "±infinity stays unless a bound limits it; NaN stays",
    ),
    ("ELU", "NaN becomes 0", "NaN stays"),
    (
        "MAXIMUM, MINIMUM",
        "the first operand if one is NaN",
        "LiteRT: the second one; onnxruntime: NaN",
    ),
    ("REDUCE_MAX, REDUCE_MIN", "NaN does not count", "the engine's own"),
    ("REDUCE_PROD", "0 if one factor is 0, whatever the others are", "the engine's own"),
    ("QUANTIZE", "NaN becomes the largest stored value", "the engine's own"),
    ("EXP", "as IEEE 754 says", "likewise, but of NaN LiteRT may give 0"),
    ("others of single elements", "as IEEE 754 says", "likewise"),
)
_NOT_FINITE_END: Final = """
Float16 is computed in float32 and rounded once, so that what is beyond 65504 is infinite. Finite numbers
are not changed by others that are not, unless both are in one sum, product, window or normalisation.
"""


def _not_finite() -> str:
    head = ("Operation on float32", "Reference executor", "LiteRT, onnxruntime")
    return _NOT_FINITE + _table(head, _NOT_FINITE_ROWS) + _NOT_FINITE_END


def page() -> str:
    """The whole page, in Markdown."""
    by_name = sorted(REGISTRY.values(), key=lambda d: d.signature.type.name)
    parts = [_INTRODUCTION, _overview(by_name), _not_finite()]
    parts += [_section(definition) for definition in by_name]
    parts.append(_deviations(EXECUTORS / "operations", EXECUTORS / "reference"))
    return "\n".join(parts)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _overview(definitions: Iterable[OperationDefinition]) -> str:
    signatures = [d.signature for d in definitions]
    return _table(
        ["Operation", "Code", "Since", "What it does"],
        (
            [
                f"[{s.type.name}](#{s.type.name.lower()})",
                str(int(s.type)),
                _LEVELS[s.since],
                s.summary,
            ]
            for s in signatures
        ),
    )


def _section(definition: OperationDefinition) -> str:
    signature = definition.signature
    parts = [
        f"## {signature.type.name}\n",
        f"{signature.summary} Code {int(signature.type)}, since {_LEVELS[signature.since]}."
        f" {_remarks(definition)}\n",
        *_operands(signature.forms),
        _types(signature),
    ]
    return "\n".join(parts)


def _remarks(definition: OperationDefinition) -> str:
    accepted = "Accepts" if definition.zero_sized else "Does not accept"
    remark = f"{accepted} empty tensors."
    if definition.shape is None:
        remark += " Output extents depend on data."
    return remark


def _operands(forms: Sequence[Form]) -> Iterator[str]:
    """A table of inputs for every different list, and of outputs if they differ from before."""
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    for form in forms:
        if form.name:
            yield f"Form *{form.name}*, since {_LEVELS[form.since]}:\n"
        if form.inputs != inputs:
            yield _table(
                ["", "Input", "Type", "Use", "Remarks"],
                (
                    [*_described(slot, at), _slot_remarks(slot, form)]
                    for at, slot in _numbered(form)
                ),
            )
        if form.outputs != outputs or form.inputs != inputs:
            yield _table(
                ["", "Output", "Type"],
                ([str(at), f"`{slot.name}`", _type(slot)] for at, slot in enumerate(form.outputs)),
            )
        inputs, outputs = form.inputs, form.outputs


def _numbered(form: Form) -> Iterator[tuple[str, Slot]]:
    """Positions of the inputs; those behind a slot that repeats are counted from it."""
    repeated = ""
    for at, slot in enumerate(form.inputs):
        if slot.repeats is not None:
            yield f"{at}…", slot
            repeated = "last" if at < len(form.inputs) - 1 else ""
        else:
            yield repeated or str(at), slot


def _described(slot: Slot, at: str) -> list[str]:
    return [at, f"`{slot.name}`", _type(slot), slot.role.value]


def _type(slot: Slot) -> str:
    return slot.type if isinstance(slot.type, str) else slot.type.name


def _slot_remarks(slot: Slot, form: Form) -> str:
    remarks = []
    if slot.repeats is not None:
        remarks.append(f"{slot.repeats} or more")
    if slot.rank:
        remarks.append(f"rank {_ranks(slot.rank)}")
    if slot.default is not REQUIRED:
        remarks.append(f"default {slot.default}")
    if slot.nullable:
        remarks.append("may be omitted")
    if slot.since > form.since:
        remarks.append(f"since {_LEVELS[slot.since]}")
    return ", ".join(remarks)


def _ranks(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{min(ranks)} to {max(ranks)}"


def _types(signature: Signature) -> str:
    variables = sorted({variable for row in signature.rows for variable in row.types})
    if not variables:
        return ""
    # A combination is no older than its operation.
    combinations = [
        (max(row.since, signature.since), [_names(row.types.get(v, ())) for v in variables])
        for row in signature.rows
    ]
    return _table(["Since", *variables], _type_lines(combinations))


def _type_lines(combinations: Sequence[tuple[FeatureLevel, list[str]]]) -> Iterator[list[str]]:
    """One line per combination; combinations of a single variable share a line per version."""
    if any(len(names) > 1 for _, names in combinations):
        for level, names in combinations:
            yield [_LEVELS[level], *names]
        return
    by_level: dict[FeatureLevel, list[str]] = {}
    for level, names in combinations:
        by_level.setdefault(level, []).extend(names)
    for level in sorted(by_level):
        yield [_LEVELS[level], ", ".join(by_level[level])]


def _names(types: OperandType | Iterable[OperandType]) -> str:
    return (
        types.name if isinstance(types, OperandType) else ", ".join(t.name for t in sorted(types))
    )


def _deviations(*roots: Path) -> str:
    parts = ["## Where it differs from NNAPI\n"]
    for path in (path for root in roots for path in sorted(root.rglob("*.py"))):
        found = list(deviations(path.read_text("utf-8")))
        if found:
            parts.append(f"`{path.relative_to(EXECUTORS.parents[1])}`:\n")
            parts.append("".join(f"- {text}\n" for text in found))
    return "\n".join(parts)


def deviations(source: str) -> Iterator[str]:
    """The text behind each `DEVIATES:` of a source, to the end of its comment or paragraph."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        before, tag, first = line.partition("DEVIATES: ")
        if not tag:
            continue
        comment = before.lstrip().startswith("#")
        text = [first]
        for following in map(str.strip, lines[number + 1 :]):
            ended = '"""' in text[-1] or not following
            if ended or (comment and not following.startswith("#")):
                break
            text.append(following.lstrip("#: "))
        yield " ".join(text).partition('"""')[0].strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page to the file that the command line names."""
    parser = argparse.ArgumentParser(description="Write the page of all operations.")
    parser.add_argument("path", type=Path, help="file to write")
    parser.parse_args(arguments).path.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
