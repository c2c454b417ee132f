"""What `nnburst.load` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nnburst.hal.model import Model


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A variable of the network, which became an input and an output of the model.

    An execution passes `initial` the first time and then what the output gave.

    Attributes:
        name: of the variable.
        input_index: position among the model's inputs.
        output_index: position among the model's outputs.
        initial: value before the first execution; the input's shape and dtype, read-only.
    """

    name: str
    input_index: int
    output_index: int
    initial: npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """Names that a file gives to the inputs and outputs of its main subgraph.

    In the answer of `nnburst.load` the values are positions among the model's inputs and outputs.
    """

    key: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class ImportedModel:
    """A network read from a file. Immutable; `Device.prepare` takes it as it is.

    Attributes:
        model: its inputs are the network's, then one per state; its outputs likewise.
        pools: bytes of the model's pools, read-only uint8 arrays, in the model's order.
        input_names: of every input, states included.
        output_names: of every output, states included.
        states: the variables.
        signatures: names that the file gives to inputs and outputs.
        metadata: other contents of the file, by name.
        description: that of the file.
        operators: for each operation of the main subgraph, the operator that it comes from
            ("3 CONV_2D").
    """

    model: Model
    pools: tuple[npt.NDArray[np.uint8], ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    signatures: tuple[SignatureDef, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    description: str = ""
    operators: tuple[str, ...] = ()
