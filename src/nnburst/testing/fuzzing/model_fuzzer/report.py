"""What a campaign did."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: What a mutation's id stands for (NNAPI: ValidateModel.cpp, ValidateRequest.cpp, ValidateBurst.cpp).
KINDS: Final = {
    "VM1": "reader moved before its writer",
    "VM2": "writer moved behind its readers",
    "VM3": "operand type that does not exist",
    "VM4": "scalar with a dimension",
    "VM5": "scale that the type forbids",
    "VM6": "zero point that the type forbids",
    "VM7": "lifetime that the graph contradicts",
    "VM8": "lifetime that the index lists contradict",
    "VM9": "wrong number of consumers",
    "VM10": "operand written twice",
    "VM11": "operand of another type",
    "VM12": "operation that does not exist",
    "VM13": "input operand that does not exist",
    "VM14": "output operand that does not exist",
    "VM15": "operand read and never written",
    "VM16": "operand struck out",
    "VM17": "operation struck out",
    "VM18": "operation with an input less",
    "VM19": "operation with an output less",
    "VM20": "operation with an input more",
    "VM21": "operation with an output more",
    "VM22": "execution preference that does not exist",
    "VM23": "priority that does not exist",
    "VR1": "asynchronous execution without an input",
    "VR2": "execute without an input",
    "VR3": "burst without an input",
    "VR4": "fenced execution without an input",
    "VR5": "any of them without an output",
    "VR6": "slot freed: known, unknown, twice",
    "VR7": "model that cannot be executed",
    "VR8": "fenced execution that waits for no fence",
    "VR9": "execution object, or AIDL's burst, without an input or with wrong identifiers",
    "VB1": "packet with an element less",
    "VB2": "packet with an element more",
    "VB3": "packet with an element replaced",
    "VB4": "packet with an unknown slot",
    "VB5": "result longer than its ring",
}


class FuzzFailure(NamedTuple):
    """Something that should not have happened; model and mutation reproduce it."""

    model: str
    mutation: str
    reason: str


@dataclass(frozen=True, slots=True)
class FuzzSelection:
    """Which mutations to send.

    Attributes:
        mutation: regular expression that a mutation's description must begin with.
    """

    mutation: str = ""

    def takes(self, description: str) -> bool:
        """Whether a mutation is sent."""
        return re.match(self.mutation, description) is not None


EVERYTHING: Final = FuzzSelection()


@dataclass(slots=True)
class FuzzReport:
    """Counts and failures. Not thread-safe.

    Attributes:
        sent: mutations by the id of their kind ("VM11").
        refused_by: how many answers named which rule ("P4").
        failures: what should not have happened.
    """

    sent: Counter[str] = field(default_factory=Counter)
    refused_by: Counter[str] = field(default_factory=Counter)
    failures: list[FuzzFailure] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Mutations sent."""
        return self.sent.total()

    def count(self, description: str) -> None:
        """One mutation was sent; its description begins with the id of its kind."""
        self.sent[description.partition(" ")[0]] += 1

    def refused(self, message: str) -> None:
        """An answer refused something; its message begins with a rule."""
        rule = re.match(r"\w+:[A-Z]+\d+(?=: )", message)
        self.refused_by[rule[0] if rule else "(unnamed)"] += 1

    def fail(self, model: str, mutation: str, reason: str) -> None:
        """Note a failure."""
        self.failures.append(FuzzFailure(model, mutation, reason))
