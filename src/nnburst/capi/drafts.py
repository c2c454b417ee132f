"""Executions that the library keeps to itself until something is asked of them that only Python does.

Programs make, set, compute and free an execution for each inference. The library notes such a draft's
arguments by the template of its compilation, and computes it by a request that the burst lends
(csrc/capi/draft.h). What is here makes templates and loans, adopts a draft that needs more, and finishes a
run that ended otherwise than the one before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nnburst._native import ffi, lib
from nnburst.capi.addresses import content
from nnburst.capi.living import LIVING
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.memory.staging import Layout
from nnburst.hal.closing import Closing
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Operand
from nnburst.runtime.argument import Argument
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.objects.arguments.argument_info import exact_length
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.execution import Execution

logger = logging.getLogger("nnburst.capi")

_RUN: Final = ffi.addressof(lib, "nnb_capi_run")


class _Template(Closing):
    """What the library has to know of a compilation's executions."""

    def __init__(self, executable: Executable) -> None:
        self.executable: Final = executable
        interface = executable.interface
        lengths = [exact_length(operand) for operand in (*interface.inputs, *interface.outputs)]
        self.are_all_exact: Final = all(lengths)
        self._bytes = ffi.new("uint64_t[]", lengths)
        self.struct: Any = ffi.new(
            "struct nnb_template *",
            {
                "input_count": len(interface.inputs),
                "output_count": len(interface.outputs),
                "bytes": self._bytes,
            },
        )

    @property
    def is_in_use(self) -> bool:
        """Whether drafts refer to it."""
        return bool(lib.nnb_template_in_use(self.struct))

    def close(self) -> None:
        """Nothing: it holds no more than memory of its own."""


class _Loan(Closing):
    """A request over a burst whose arguments lie in a pool, for one draft after the other."""

    def __init__(self, template: _Template, burst: Burst, bound: BoundPlan, pool: Pool) -> None:
        self.burst: Final = burst
        self.bound: Final = bound
        self._pool: Final = pool
        self._template: Final = template
        views = [argument.bytes for group in bound.arguments for argument in group]
        places = [ffi.cast("void *", view.ctypes.data) for view in views if view is not None]
        self._places = ffi.new("void *[]", places)
        self.struct: Any = ffi.new(
            "struct nnb_loan *",
            {
                "template": template.struct,
                "run": _RUN,
                "bound": bound.steps.struct,
                "places": self._places,
            },
        )

    @property
    def is_in_use(self) -> bool:
        """Whether a draft runs by it."""
        return bool(lib.nnb_loan_in_use(self.struct))

    def close(self) -> None:
        self.bound.close()
        self._pool.close()


def _new_loan(template: _Template, burst: Burst) -> _Loan | None:
    """A loan of a burst; None if arguments can have several lengths, or if C cannot run the plan."""
    if not template.are_all_exact:
        return None
    interface = template.executable.interface
    layout = Layout()
    groups = [
        [(operand, layout.place(exact_length(operand))) for operand in operands]
        for operands in (interface.inputs, interface.outputs)
    ]
    if not layout.size:
        return None
    pool = Pool(layout.size)
    try:
        inputs, outputs = (_arguments(pool, group) for group in groups)
        bound = template.executable.bind(inputs, outputs, burst.bursts)
    except BaseException:
        pool.close()
        raise
    if bound is None or bound.needs_python or not bound.is_known:
        if bound is not None:
            bound.close()
        pool.close()
        return None
    return _Loan(template, burst, bound, pool)


def _arguments(pool: Pool, places: Sequence[tuple[Operand, int]]) -> list[Argument]:
    return [
        Argument(pool.array(np.uint8, (exact_length(operand),), place), operand.dimensions)
        for operand, place in places
    ]


class Drafts:
    """Templates by compilation and loans by burst, both by handle. Thread-safe."""

    def __init__(self) -> None:
        """Offer nothing, and nothing before `exchange` is set."""
        self.exchange: Any = None
        self._lock: Final = threading.Lock()
        self._templates: Final[dict[int, _Template]] = {}
        self._by_address: Final[dict[int, _Template | _Loan]] = {}
        #: None for a burst that has computed once, or that lends nothing.
        self._loans: Final[dict[int, _Loan | None]] = {}
        self._ended: Final[list[_Template | _Loan]] = []

    def offer(self, compilation: int, execution: Execution) -> None:
        """Let the next execution of a compilation be a draft.

        Args:
            compilation: its handle.
            execution: that it has made.
        """
        with self._lock:
            template = self._templates.get(compilation)
            if template is None:
                template = _Template(execution._executable)
                self._templates[compilation] = template
                self._know(template)
        self.exchange.offer_template(compilation, template.struct)

    def lend(self, handle: int, burst: Burst) -> None:
        """Let a burst that has computed lend a request to drafts, from its second computation on.

        Args:
            handle: of the burst.
            burst: itself.
        """
        with self._lock:
            template = self._template_of(burst)
            known = self._loans.get(handle)
            if template is None or (known is not None and known.bound.is_current):
                return
            if handle not in self._loans:
                self._loans[handle] = None
                return
            try:
                loan = _new_loan(template, burst)
            except NnburstError as error:
                logger.info("a burst lends nothing: %s", error)
                return
            if loan is None:
                return
            self._loans[handle] = loan
            self._know(loan)
        self.exchange.lend(handle, loan.struct)
        self._close_unused(known)

    def _template_of(self, burst: Burst) -> _Template | None:
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
        assert isinstance(template, _Template)
        execution = Execution(template.executable)
        inputs = len(template.executable.interface.inputs)
        for at in range(inputs + len(template.executable.interface.outputs)):
            place = _address(draft.arguments[at])
            if place:
                view = content(place, template.struct.bytes[at])
                if at < inputs:
                    execution.set_input(at, view)
                else:
                    execution.set_output(at - inputs, view)
        if draft.completed:
            execution._has_computed()
        LIVING[handle] = execution
        return execution

    def finish(self, handle: int, draft: Any, struct: Any, status: int) -> None:  # noqa: ANN401
        """Adopt a draft with its run by a loan, which ended with `status`; outputs are then in the pool.

        Raises:
            NnburstError: what came of it.
        """
        loan = self._by_address[_address(struct)]
        assert isinstance(loan, _Loan)
        try:
            execution = self.adopt(handle, draft)
        except BaseException:
            loan.bound.steps.abandon()
            raise
        try:
            execution._compute_bound(loan.bound, loan.burst, status)
        finally:
            if not loan.bound.is_current:
                self._call_in(loan)

    def _call_in(self, loan: _Loan) -> None:
        with self._lock:
            handle = next((h for h, known in self._loans.items() if known is loan), None)
            if handle is None:
                return
            self._loans[handle] = None
        self.exchange.lend(handle, ffi.NULL)
        self._close_unused(loan)

    def release(self, handle: int) -> None:
        """The handle has ended, and with it what the library was offered under it."""
        with self._lock:
            ended = [self._templates.pop(handle, None), self._loans.pop(handle, None)]
        for each in ended:
            self._close_unused(each)

    def _close_unused(self, ended: _Template | _Loan | None) -> None:
        """Close it, and what could not be closed before, unless the library still looks at it."""
        with self._lock:
            waiting = [*self._ended, *([] if ended is None else [ended])]
            self._ended[:] = [each for each in waiting if each.is_in_use]
            for each in waiting:
                if each not in self._ended:
                    del self._by_address[_address(each.struct)]
                    each.close()

    def _know(self, made: _Template | _Loan) -> None:
        self._by_address[_address(made.struct)] = made


def _address(pointer: Any) -> int:  # noqa: ANN401 - of cffi's
    return int(ffi.cast("uintptr_t", pointer))


DRAFTS: Final = Drafts()
