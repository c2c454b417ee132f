"""Describes which operands an operation accepts: names, types per version, and defaults.

A signature is data. It is declared once, with the operation's shape rule, and drives validation
(validation:P4), getSupportedOperations, the generated documentation and the completeness test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand, is_extension


class Role(Enum):
    """A kernel's use of an operand's bytes, which determines the harm that a hostile writer can do."""

    #: Numbers of the computation; they may change while the kernel runs without harm.
    DATA = "data"
    #: Steers shapes or configuration (axis, paddings, strides, sizes); read once, before binding.
    CONTROL = "control"
    #: Used as indexes or lengths while the kernel runs; the kernel sees a private copy.
    INDEX = "index"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Slot(msgspec.Struct, frozen=True):
    """One operand position.

    Attributes:
        name: the operand's name, snake_case; kernels find it by this name.
        type: a concrete type, or the name of a type variable that the rows resolve.
        role: the use that the kernel makes of the bytes.
        default: value of a scalar that may be left out at the end of the list.
        nullable: the operand may be given without a value (lifetime NO_VALUE, or hasNoValue).
        since: version that introduced this position.
        repeats: None for one operand; otherwise the least number of operands that this slot takes.
            At most one slot of a list repeats.
        rank: ranks that validation accepts if the rank is known; empty for any.
    """

    name: str
    type: OperandType | str
    role: Role = Role.DATA
    default: object = REQUIRED
    nullable: bool = False
    since: FeatureLevel = FeatureLevel.V1_0
    repeats: int | None = None
    rank: tuple[int, ...] = ()


class Form(msgspec.Struct, frozen=True):
    """One accepted list of inputs and outputs.

    Attributes:
        inputs: slots in order.
        outputs: slots in order.
        counts: accepted numbers of inputs; empty for exactly all slots (or, with a slot that
            repeats, for any number that fits).
        since: version that introduced the form.
        name: distinguishes forms in messages and documentation ("implicit padding", say).
    """

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    counts: tuple[int, ...] = ()
    since: FeatureLevel = FeatureLevel.V1_0
    name: str = ""

    def expand_inputs(self, count: int) -> tuple[Slot, ...] | None:
        """The slot of each of `count` inputs, or None if this form does not accept that number."""
        if self.counts:
            return self.inputs[:count] if count in self.counts else None
        return _expand(self.inputs, count)

    def expand_outputs(self, count: int) -> tuple[Slot, ...] | None:
        """The slot of each of `count` outputs, or None if this form does not have that number."""
        return _expand(self.outputs, count)


def _expand(slots: tuple[Slot, ...], count: int) -> tuple[Slot, ...] | None:
    at = next((i for i, slot in enumerate(slots) if slot.repeats is not None), None)
    if at is None:
        return slots if count == len(slots) else None
    repeated = count - (len(slots) - 1)
    if repeated < (slots[at].repeats or 0):
        return None
    return slots[:at] + (slots[at],) * repeated + slots[at + 1 :]


class TypeRow(msgspec.Struct, frozen=True):
    """One accepted combination of types.

    Attributes:
        since: version that introduced the combination.
        types: type (or set of types) of every type variable of the signature.
    """

    since: FeatureLevel
    types: Mapping[str, OperandType | frozenset[OperandType]]


class Match(NamedTuple):
    """The form that an operation's operands fit, and the slot of each operand.

    Attributes:
        form: the form that fits.
        inputs: slot of each input.
        outputs: slot of each output.
        since: lowest version in which exactly this use is valid.
    """

    form: Form
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    since: FeatureLevel


#: Extra rule of one operation: called with the match and the operands of inputs and outputs; raises
#: InvalidArgument, which names operand and rule.
Check = Callable[[Match, Sequence[Operand], Sequence[Operand]], None]


class Signature(msgspec.Struct, frozen=True):
    """The description of an operation, without its computation.

    Attributes:
        type: code of the operation.
        since: version that introduced it.
        forms: accepted operand lists; the first whose number and types fit is taken.
        rows: accepted type combinations.
        check: rules that counts and types cannot express.
        summary: one sentence for the documentation.
    """

    type: OperationType
    since: FeatureLevel
    forms: tuple[Form, ...]
    rows: tuple[TypeRow, ...]
    summary: str
    check: Check | None = None

    def match(self, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Match:
        """Find form and row for these operands.

        Raises:
            InvalidArgument: validation:P4; the message names the operation, the operand and the rule.
        """
        fitting, reason = -1, ""
        for form in self.forms:
            ins, outs = form.expand_inputs(len(inputs)), form.expand_outputs(len(outputs))
            if ins is None or outs is None:
                continue
            slots = [*zip(ins, inputs, strict=True), *zip(outs, outputs, strict=True)]
            for row in self.rows:
                position, wrong = _first_mismatch(slots, row)
                if not wrong:
                    since = max(self.since, form.since, row.since, *(s.since for s in ins))
                    found = Match(form, ins, outs, FeatureLevel(since))
                    _check_ranks(self.type, slots)
                    self._check(found, inputs, outputs)
                    return found
                if position > fitting:  # the combination that fits furthest gives the best message
                    fitting, reason = position, wrong
        if not reason:
            counts = sorted(
                {len(f.inputs) for f in self.forms} | {c for f in self.forms for c in f.counts}
            )
            reason = (
                f"{len(inputs)} inputs and {len(outputs)} outputs fit no form"
                f" (inputs: {', '.join(map(str, counts))})"
            )
        raise InvalidArgument(f"validation:P4: {self.type.name}: {reason}")

    def _check(self, found: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
        """Apply the extra rule; its error gets the operation's name, since operations may share a rule."""
        try:
            if self.check is not None:
                self.check(found, inputs, outputs)
        except InvalidArgument as error:
            rule, _, message = str(error).partition(": ")
            if message.startswith(self.type.name):
                raise
            raise InvalidArgument(f"{rule}: {self.type.name}: {message}") from error


def _first_mismatch(slots: Sequence[tuple[Slot, Operand]], row: TypeRow) -> tuple[int, str]:
    """Position of the first operand that the row does not accept, and the reason; "" if all fit."""
    for position, (slot, operand) in enumerate(slots):
        wanted = row.types[slot.type] if isinstance(slot.type, str) else slot.type
        accepted = wanted if isinstance(wanted, frozenset) else (wanted,)
        if operand.type not in accepted:
            names = " or ".join(sorted(t.name for t in accepted))
            found = type_name(operand.type)
            return position, f"operand '{slot.name}' is {found}, expected {names}"
    return len(slots), ""


def _check_ranks(operation: OperationType, slots: Sequence[tuple[Slot, Operand]]) -> None:
    for slot, operand in slots:
        rank = len(operand.dimensions)
        if slot.rank and rank and rank not in slot.rank:
            raise InvalidArgument(
                f"validation:P4: {operation.name}: operand '{slot.name}' has rank {rank},"
                f" expected {' or '.join(map(str, slot.rank))}"
            )


#: NNAPI: operations with an operand that may be given without a value. An extension's may have some, too.
_WITH_OPTIONAL_OPERANDS: Final = frozenset(
    OperationType[name]
    for name in (
        *("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "IF", "LSH_PROJECTION"),
        *("LSTM", "QUANTIZED_LSTM", "SQUEEZE", "SVDF", "TRANSPOSE", "WHILE"),
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
    )
)


def may_omit_inputs(operation: int) -> bool:
    """Whether an operation may have an operand without a value; True for those that only vendors define."""
    return (
        operation in _WITH_OPTIONAL_OPERANDS
        or operation == OperationType.OEM_OPERATION
        or is_extension(operation)
    )


def type_name(kind: int) -> str:
    """Name of an operand type for messages; extension types by their number."""
    try:
        return OperandType(kind).name
    except ValueError:
        return f"type {kind:#x}"
