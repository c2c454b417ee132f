"""A .tflite file, as LiteRT reads it and as NNAPI sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnburst.hal.model import Operand
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load


@dataclass(frozen=True)
class NetworkFile:
    """A network to be measured.

    Attributes:
        name: for people.
        content: the file.
        imported: the model.
        inputs: operands of the inputs that are no states.
        outputs: likewise of the outputs.
        output_positions: which of the model's outputs those are.
    """

    name: str
    content: bytes
    imported: ImportedModel
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    output_positions: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> NetworkFile:
        """Read a file.

        Raises:
            InvalidArgument: it is no network that NNAPI can say.
            OSError: it cannot be read.
        """
        imported = load(path)
        main = imported.model.main
        given = {state.input_index for state in imported.states}
        left = {state.output_index for state in imported.states}
        taken = tuple(at for at in range(len(main.output_indexes)) if at not in left)
        return cls(
            path.stem,
            path.read_bytes(),
            imported,
            tuple(main.operands[i] for at, i in enumerate(main.input_indexes) if at not in given),
            tuple(main.operands[main.output_indexes[at]] for at in taken),
            taken,
        )
