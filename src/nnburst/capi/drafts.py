"""Executions that the library keeps to itself until something is asked of them that only Python does.

Programs make, set, compute and free an execution for each inference. The library notes such a draft's
arguments by the template of its compilation, and computes it by a request that the burst lends
(csrc/capi/draft.h): one for arguments at addresses, which are copied, and one for each set of ranges of
memories. What is here makes templates and loans, adopts a draft that needs more, and finishes a run that
ended otherwise than the one before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

from nnburst._native import ffi
from nnburst.capi.addresses import content
from nnburst.capi.lender import Lender
from nnburst.capi.living import LIVING
from nnburst.capi.loan import Loan, new_loan, placing_of
from nnburst.capi.template import Template
from nnburst.hal.errors import NnburstError
from nnburst.runtime.objects.arguments.argument_list import ArgumentList
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.execution import Execution

logger = logging.getLogger("nnburst.capi")


class Drafts:
    """Templates by compilation and loans by burst, both by handle. Thread-safe."""

    def __init__(self) -> None:
        """Offer nothing, and nothing before `exchange` is set."""
        self.exchange: Any = None
        self._lock: Final = threading.Lock()
        self._templates: Final[dict[int, Template]] = {}
        self._by_address: Final[dict[int, Template | Loan]] = {}
        self._lenders: Final[dict[int, Lender]] = {}
        #: Bursts that lend requests which are bound to a memory, both by handle.
        self._bound_to: Final[dict[int, set[int]]] = {}
        self._ended: Final[list[Template | Loan]] = []
        #: Held while the library is told what a burst lends, so that it is told the latest last.
        self._publishing: Final = threading.Lock()

    def offer(self, compilation: int, execution: Execution) -> None:
        """Let the next execution of a compilation be a draft.

        Args:
            compilation: its handle.
            execution: that it has made.
        """
        with self._lock:
            template = self._templates.get(compilation)
            if template is None:
                template = Template(execution._executable)
                self._templates[compilation] = template
                self._know(template)
        self.exchange.offer_template(compilation, template.struct)

    def lend(self, handle: int, burst: Burst, execution: Execution) -> None:
        """Let a burst lend a request to drafts like an execution, from the second such execution on.

        Args:
            handle: of the burst.
            burst: itself.
            execution: that has computed on it.
        """
        infos = (*execution._inputs.given, *execution._outputs.given)
        placing = placing_of(infos)
        with self._lock:
            template = self._template_of(burst)
            if template is None or placing is None or len(placing) != template.count:
                return
            if not template.are_all_exact:
                return
            lender = self._lenders.setdefault(handle, Lender())
            known = lender.find(placing)
            if not lender.is_wanted(placing) or (known is not None and known.bound.is_current):
                return
            try:
                loan = new_loan(template, burst, infos, placing)
            except NnburstError as error:
                logger.info("a burst lends nothing, its executions go through Python: %s", error)
                return
            if loan is None:
                lender.can_lend = False
                return
            lender.keep(loan)
            self._know(loan)
            memories = {place[0] for place in placing if place is not None}
            for memory in memories:
                self._bound_to.setdefault(memory, set()).add(handle)
        for memory in memories:
            self._offer_memory(memory)
        self._publish(handle)
        self._close_unused([known])

    def _offer_memory(self, handle: int) -> None:
        memory = LIVING.get(handle)
        if memory is None:  # another thread has freed it
            self.release(handle)
        else:
            self.exchange.offer_memory(handle, memory.size)

    def _publish(self, handle: int) -> None:
        """Give the library what a burst lends now."""
        with self._publishing:
            with self._lock:
                lender = self._lenders.get(handle)
                if lender is None:
                    return
                loans = lender.loans
            array = ffi.new("struct nnb_loan *[]", [loan.struct for loan in loans])
            self.exchange.lend(handle, array, len(loans))
            lender.array = array  # the library has let go of the one before

    def _template_of(self, burst: Burst) -> Template | None:
        of_burst = burst._executable
        return next((t for t in self._templates.values() if t.executable is of_burst), None)

    def adopt(self, handle: int, draft: Any) -> Execution:  # noqa: ANN401 - a pointer of cffi's
        """Make an execution of a draft, under the handle that it has.

        Args:
            handle: of the execution.
            draft: the library's `struct nnb_draft`.

        Raises:
            NnburstError: it cannot be made.
        """
        template = self._by_address[_address(draft.template)]
        assert isinstance(template, Template)
        execution = Execution(template.executable)
        places = [(draft.arguments[at], template.struct.bytes[at]) for at in range(template.count)]
        inputs = len(template.executable.interface.inputs)
        for arguments, given in (
            (execution._inputs, places[:inputs]),
            (execution._outputs, places[inputs:]),
        ):
            for index, (place, length) in enumerate(given):
                _set(arguments, index, place, length, is_done=bool(draft.completed))
        if draft.completed:
            execution._has_computed()
        LIVING[handle] = execution
        draft.adopted = True
        return execution

    def finish(self, handle: int, draft: Any, struct: Any, status: int) -> bool:  # noqa: ANN401
        """Adopt a draft with its run by a loan, which ended with `status`.

        Returns:
            Whether outputs that have addresses are in the loan's pool; if not, they are with the program.

        Raises:
            NnburstError: what came of it.
        """
        loan = self._by_address[_address(struct)]
        assert isinstance(loan, Loan)
        try:
            execution = self.adopt(handle, draft)
        except BaseException:
            loan.bound.steps.abandon()
            raise
        try:
            return execution._finish_bound(loan.bound, loan.burst, status)
        finally:
            if not loan.bound.is_current:
                self._call_in(loan)

    def _call_in(self, loan: Loan) -> None:
        with self._lock:
            lent = [h for h, lender in self._lenders.items() if lender.call_in(loan)]
        for handle in lent:
            self._publish(handle)
            self._close_unused([loan])

    def release(self, handle: int) -> None:
        """The handle has ended, and with it what the library was offered under it."""
        ended: list[Template | Loan | None]
        with self._lock:
            lender = self._lenders.pop(handle, None)
            ended = [self._templates.pop(handle, None), *(lender.loans if lender else ())]
            bursts = self._bound_to.pop(handle, set())
            for burst in bursts & self._lenders.keys():
                ended += self._lenders[burst].release(handle)
        for burst in bursts:
            self._publish(burst)
        self._close_unused(ended)

    def _close_unused(self, ended: Sequence[Template | Loan | None]) -> None:
        """Close them, and what could not be closed before, unless the library still looks at it."""
        with self._lock:
            waiting = [*self._ended, *(each for each in ended if each is not None)]
            self._ended[:] = [each for each in waiting if each.is_in_use]
            for each in waiting:
                if each not in self._ended:
                    del self._by_address[_address(each.struct)]
                    each.close()

    @property
    def is_in_use(self) -> bool:
        """Whether the library looks at anything of it."""
        with self._lock:
            return any(each.is_in_use for each in self._by_address.values())

    def close(self) -> None:
        """Give all templates and loans up, none of which is in use any more."""
        with self._lock:
            ended = [*self._by_address.values()]
            self._templates.clear()
            self._lenders.clear()
            self._bound_to.clear()
        self._close_unused(ended)

    def _know(self, made: Template | Loan) -> None:
        self._by_address[_address(made.struct)] = made


def _set(
    arguments: ArgumentList,
    index: int,
    place: Any,  # noqa: ANN401 - a struct nnb_place of cffi's
    length: int,
    *,
    is_done: bool,
) -> None:
    """Set an argument as a draft has it; nothing if it has not been set.

    Raises:
        InvalidArgument: its memory was freed, and the draft has not computed.
    """
    if place.memory and is_done and LIVING.get(place.memory) is None:
        arguments.set_pointer(index, None, None, None, padding=False)  # it is not computed again
    elif place.memory:
        memory = LIVING[place.memory]
        arguments.set_memory(index, memory, place.offset, length, None, padding=False)
    elif place.address:
        view = content(_address(place.address), length)
        arguments.set_pointer(index, view, None, None, padding=False)


def _address(pointer: Any) -> int:  # noqa: ANN401 - of cffi's
    return int(ffi.cast("uintptr_t", pointer))


DRAFTS: Final = Drafts()
