"""A .tflite file by its parts: subgraphs, operator names, bytes of buffers, signatures, metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite.format import IDENTIFIER
from nnburst.formats.tflite.reader import File, MalformedTflite
from nnburst.formats.tflite.schema import names, root_table
from nnburst.importer.imported_model import SignatureDef

#: Values of `Buffer.offset` up to this one mean that the data lies in the buffer itself.
_NO_OFFSET: Final = 1
#: Charges for objects that are made of the file's parts, generously rounded up.
OPERATOR_COST: Final = 2048
TENSOR_COST: Final = 1024
ENTRY_COST: Final = 256


class TfliteFile:
    """A file whose header was checked; everything else is checked when it is asked for.

    Attributes:
        bytes: the file, which is charged for what is made of it.
        model: the root table.
    """

    def __init__(self, content: bytes) -> None:
        """Check the header.

        Raises:
            InvalidArgument: it is not a .tflite file.
        """
        self.bytes = File(content)
        if len(content) < 8 or content[4:8] != IDENTIFIER:
            raise MalformedTflite(f"bytes 4 to 8 are {content[4:8]!r}, expected {IDENTIFIER!r}")
        self.model = root_table(self.bytes)

    def subgraph(self, index: int) -> Any:  # noqa: ANN401 - generated code without types
        """Subgraph `index`."""
        count = self.model.SubgraphsLength()
        if not 0 <= index < count:
            raise MalformedTflite(f"subgraph {index} of {count}")
        return self.model.Subgraphs(index)

    def operator_name(self, operator: Any) -> str:  # noqa: ANN401
        """Name of an operator: "CONV_2D", or "CUSTOM 'x'" for one that is not built in."""
        index, count = operator.OpcodeIndex(), self.model.OperatorCodesLength()
        if index >= count:
            raise MalformedTflite(f"operator code {index} of {count}")
        code = self.model.OperatorCodes(index)
        # Files from before there were more than 127 operators have the older field only.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = names("BuiltinOperator").get(number, f"operator code {number}")
        return f"CUSTOM {text(code.CustomCode())!r}" if name == "CUSTOM" else name

    def custom_code(self, operator: Any) -> str | None:  # noqa: ANN401
        """The name of an operator that is not built in; None if it is one that is."""
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        is_custom = names("BuiltinOperator").get(number) == "CUSTOM"
        return text(code.CustomCode()) if is_custom else None

    def buffer(self, index: int) -> npt.NDArray[np.uint8]:
        """The bytes of a buffer, a read-only view; empty if it has none."""
        count = self.model.BuffersLength()
        if not 0 <= index < count:
            raise MalformedTflite(f"buffer {index} of {count}")
        buffer = self.model.Buffers(index)
        offset, size = buffer.Offset(), buffer.Size()
        if offset > _NO_OFFSET:  # models over 2 GB keep their constants behind the flatbuffer
            return self.bytes.slice(offset, size, f"buffer {index}")
        if buffer.DataIsNone():
            return np.empty(0, np.uint8)
        data: npt.NDArray[np.uint8] = buffer.DataAsNumpy()
        return data

    def metadata(self) -> dict[str, bytes]:
        """Metadata by name."""
        found = {}
        for entry in self.entries(self.model.MetadataLength(), self.model.Metadata):
            data = self.buffer(entry.Buffer())
            self.bytes.spend(len(data))
            found[text(entry.Name())] = data.tobytes()
        return found

    def signatures(self, subgraph: int) -> tuple[SignatureDef, ...]:
        """The signatures of a subgraph, with the names that they give to its tensors."""
        every = self.entries(self.model.SignatureDefsLength(), self.model.SignatureDefs)
        return tuple(
            SignatureDef(
                text(entry.SignatureKey()),
                self._tensor_map(entry.InputsLength(), entry.Inputs),
                self._tensor_map(entry.OutputsLength(), entry.Outputs),
            )
            for entry in every
            if entry.SubgraphIndex() == subgraph
        )

    def _tensor_map(self, count: int, get: Callable[[int], Any]) -> dict[str, int]:
        return {text(e.Name()): int(e.TensorIndex()) for e in self.entries(count, get)}

    def entries(self, count: int, get: Callable[[int], Any]) -> Iterator[Any]:
        """The tables of a vector, charged one by one."""
        for index in range(count):
            self.bytes.spend(ENTRY_COST)
            yield get(index)


def text(raw: bytes | None) -> str:
    """A name from the file; bytes that are not UTF-8 are shown as escapes."""
    return (raw or b"").decode("utf-8", "backslashreplace")
