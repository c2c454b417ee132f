"""Template: what the library has to know of a compilation to keep its executions to itself."""

from __future__ import annotations

from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.hal.closing import Closing
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.objects.arguments.argument_info import exact_length


class Template(Closing):
    """Input and output lengths of a compilation's executions.

    Attributes:
        executable: what they execute.
        count: of inputs and outputs.
        are_all_exact: whether each of them has one length.
        struct: as the library has it.
    """

    def __init__(self, executable: Executable) -> None:
        """Of executions of `executable`."""
        self.executable: Final = executable
        interface = executable.interface
        lengths = [exact_length(operand) for operand in (*interface.inputs, *interface.outputs)]
        self.are_all_exact: Final = all(lengths)
        self.count: Final = len(lengths)
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
