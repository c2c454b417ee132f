"""Loan: a request that a burst lends to executions which the library keeps to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from nnburst._native import ffi, lib
from nnburst.capi.living import LIVING
from nnburst.capi.template import Template
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.memory.staging import Layout
from nnburst.hal.closing import Closing
from nnburst.runtime.argument import Argument
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.objects.arguments.argument_info import ArgumentInfo, exact_length
from nnburst.runtime.objects.burst import Burst

_RUN: Final = ffi.addressof(lib, "nnb_capi_run")

#: Where the arguments of an execution lie: for each input, then each output, handle of a memory and offset;
#: None for one at an address.
Placing: TypeAlias = tuple[tuple[int, int] | None, ...]


def placing_of(infos: Sequence[ArgumentInfo]) -> Placing | None:
    """Where arguments lie; None if the framework must look at them each time anew.

    Args:
        infos: of each input, then each output.
    """
    places: list[tuple[int, int] | None] = []
    for info in infos:
        is_omitted = info.view is None and info.memory is None
        if is_omitted or not info.is_in_place:
            return None
        if info.memory is None:
            places.append(None)
            continue
        handle = LIVING.find(info.memory)
        if handle is None or info.length != exact_length(info.operand):
            return None
        places.append((handle, info.offset))
    return tuple(places)


class Loan(Closing):
    """A request over a burst for one draft after the other, whose arguments lie as one placing has them."""

    def __init__(
        self, template: Template, burst: Burst, bound: BoundPlan, pool: Pool, placing: Placing
    ) -> None:
        self.burst: Final = burst
        self.bound: Final = bound
        self.placing: Final = placing
        self._pool: Final = pool
        self._template: Final = template
        self._places = ffi.new("struct nnb_place[]", len(placing))
        arguments = (argument for group in bound.arguments for argument in group)
        for row, argument, place in zip(self._places, arguments, placing, strict=True):
            if place is not None:
                row.memory, row.offset = place
            elif argument.bytes is not None:
                row.address = ffi.cast("void *", argument.bytes.ctypes.data)
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
        """Give the request and its pool up."""
        self.bound.close()
        self._pool.close()


def new_loan(
    template: Template, burst: Burst, infos: Sequence[ArgumentInfo], placing: Placing
) -> Loan | None:
    """A loan of a burst; None if C cannot run the plan with such arguments.

    Args:
        template: of executions whose arguments all have one length.
        burst: of the same compilation.
        infos: of each input, then each output.
        placing: of them.

    Raises:
        NnburstError: it cannot be bound.
    """
    layout = Layout()
    offsets = [0 if info.memory else layout.place(exact_length(info.operand)) for info in infos]
    pool = Pool(max(layout.size, 1))
    try:
        bound = _bound(template, burst, infos, pool, offsets)
    except BaseException:
        pool.close()
        raise
    if bound is None:
        pool.close()
        return None
    return Loan(template, burst, bound, pool, placing)


def _bound(
    template: Template,
    burst: Burst,
    infos: Sequence[ArgumentInfo],
    pool: Pool,
    offsets: Sequence[int],
) -> BoundPlan | None:
    """Arguments bound to a burst, with those at addresses in the pool."""
    arguments = [
        info.as_argument()
        if info.memory
        else Argument(
            pool.array(np.uint8, (exact_length(info.operand),), offset), info.operand.dimensions
        )
        for info, offset in zip(infos, offsets, strict=True)
    ]
    inputs = len(template.executable.interface.inputs)
    bound = template.executable.bind(arguments[:inputs], arguments[inputs:], burst.bursts)
    if bound is not None and (bound.needs_python or not bound.is_known):
        bound.close()
        return None
    return bound
