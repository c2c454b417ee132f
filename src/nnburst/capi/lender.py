"""Lender: what one burst lends."""

from __future__ import annotations

from typing import Any, Final

from nnburst._native import ffi
from nnburst.capi.loan import Loan, Placing


class Lender:
    """Requests of one burst, by where the arguments of executions lie.

    Attributes:
        can_lend: whether C can run its plan.
        array: of loans, as the library has it.
    """

    #: Placings that a burst keeps requests for; the framework computes what has another.
    MOST: Final = 8

    def __init__(self) -> None:
        """Lend nothing."""
        self.can_lend = True
        self.array: Any = ffi.NULL
        #: None for a placing that has computed once.
        self._loans: Final[dict[Placing, Loan | None]] = {}

    @property
    def loans(self) -> list[Loan]:
        """All that it lends."""
        return [loan for loan in self._loans.values() if loan is not None]

    def find(self, placing: Placing) -> Loan | None:
        """The loan of a placing."""
        return self._loans.get(placing)

    def is_wanted(self, placing: Placing) -> bool:
        """Whether a loan would be of use: the placing has computed before. It is noted if there is room."""
        if not self.can_lend or placing in self._loans:
            return self.can_lend
        if len(self._loans) == self.MOST:
            once = next((known for known, loan in self._loans.items() if loan is None), None)
            if once is None:
                return False
            del self._loans[once]
        self._loans[placing] = None
        return False

    def keep(self, loan: Loan) -> None:
        """Lend it, in place of one of the same placing."""
        self._loans[loan.placing] = loan

    def call_in(self, loan: Loan) -> bool:
        """Lend it no more; whether it was lent."""
        if self._loans.get(loan.placing) is not loan:
            return False
        self._loans[loan.placing] = None
        return True

    def release(self, memory: int) -> list[Loan]:
        """Give up each placing with a memory, by its handle; the loans of them."""
        gone = [
            placing
            for placing in self._loans
            if any(place is not None and place[0] == memory for place in placing)
        ]
        loans = [self._loans.pop(placing) for placing in gone]
        return [loan for loan in loans if loan is not None]
