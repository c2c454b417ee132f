"""dev.nnburst.onnx as drivers register it: operand types and one operation, checked like the core's."""

from __future__ import annotations

from typing import Final

from nnburst.hal import graph_extension
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation

#: What a device says about it.
DESCRIPTION: Final = Extension(
    graph_extension.NAME,
    (
        ExtensionOperandTypeInformation(graph_extension.FILE, True, 1),
        *(
            ExtensionOperandTypeInformation(number, True, dtype.itemsize)
            for number, dtype in sorted(graph_extension.DTYPES.items())
        ),
    ),
)
