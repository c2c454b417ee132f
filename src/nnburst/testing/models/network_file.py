"""Reads a file of a network, as its engine sees it and as NNAPI does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from nnburst.hal.model import Operand
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import is_onnx, load

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NetworkFile:
    """A network with the inputs and outputs that its user sees, which are not states.

    Attributes:
        name: of the file, without suffix.
        content: the file.
        imported: the model, whose inputs and outputs hold the states, too.
        inputs: operands.
        outputs: operands.
        input_names: as in the file.
        output_names: as in the file.
        output_positions: which of the model's outputs these are.
        reading: makes the model of the file again.
        constants: values of inputs of an .onnx file that are the same in every execution.
    """

    name: str
    content: bytes
    imported: ImportedModel
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    output_positions: tuple[int, ...]
    reading: Callable[[bytes], ImportedModel] = load
    constants: Mapping[str, npt.ArrayLike] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, **options: Any) -> NetworkFile:  # noqa: ANN401 - those of `load`
        """Read a file, with options of `nnburst.load`.

        Raises:
            InvalidArgument: it is not a network that NNAPI can express.
            OSError: it cannot be read.
        """
        reading = partial(load, **options)
        found = cls.of(path.stem, path.read_bytes(), load(path, **options), reading)
        return replace(found, constants=options.get("constants") or {})

    @classmethod
    def of(
        cls,
        name: str,
        content: bytes,
        imported: ImportedModel,
        reading: Callable[[bytes], ImportedModel],
    ) -> NetworkFile:
        """A model that was made of a file's content.

        Args:
            name: of the network.
            content: the file.
            imported: the model.
            reading: makes it from the content.
        """
        main = imported.model.main
        given = {state.input_index for state in imported.states}
        left = {state.output_index for state in imported.states}
        into = [at for at in range(len(main.input_indexes)) if at not in given]
        out = [at for at in range(len(main.output_indexes)) if at not in left]
        return cls(
            name,
            content,
            imported,
            tuple(main.operands[main.input_indexes[at]] for at in into),
            tuple(main.operands[main.output_indexes[at]] for at in out),
            tuple(imported.input_names[at] for at in into),
            tuple(imported.output_names[at] for at in out),
            tuple(out),
            reading,
        )

    @property
    def is_tflite(self) -> bool:
        """Whether the file is a .tflite one, which LiteRT runs as it is."""
        return not is_onnx(self.content)

    def relaxed(self) -> NetworkFile:
        """The same network, whose float32 may be computed as float16."""
        model = structs.replace(self.imported.model, relax_computation_float32_to_float16=True)
        return replace(self, imported=replace(self.imported, model=model))

    def with_states(self, inputs: Sequence[Array]) -> list[Array]:
        """All inputs of the model, the states as they are before the first execution (copies)."""
        initial = {state.input_index: state.initial for state in self.imported.states}
        others = iter(inputs)
        count = len(self.imported.model.main.input_indexes)
        return [np.array(initial[at]) if at in initial else next(others) for at in range(count)]

    def without_states(self, outputs: Sequence[Array]) -> list[Array]:
        """The outputs among all outputs of the model."""
        return [outputs[at] for at in self.output_positions]
