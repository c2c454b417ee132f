"""dev.nnburst.onnx as drivers register it: operand types and one operation, checked like the core's."""

from __future__ import annotations

from typing import Final

from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation, whole_graph

#: What a device reports about it.
DESCRIPTION: Final = Extension(
    whole_graph.NAME,
    (
        ExtensionOperandTypeInformation(whole_graph.FILE, True, 1),
        *(
            ExtensionOperandTypeInformation(number, True, dtype.itemsize)
            for number, dtype in sorted(whole_graph.DTYPES.items())
        ),
    ),
)
