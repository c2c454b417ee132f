"""com.example.transposed_convolution: the transposed convolution with a bias that segmenters carry.

Converters write it into .tflite files as the custom operator `Convolution2DTransposeBias`. Its inputs are an
image (N×H×W×C), filters (outputs×rows×columns×C) and a bias. Its options are a struct of C: the padding (1 is
SAME, 2 VALID), the stride along the width and the one along the height, 32 bits each, and whatever later
versions put behind them.

NNAPI has that as TRANSPOSE_CONV_2D, so nothing has to be computed here: the extension lowers the operator to
it, and every driver runs the network.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from nnburst import FusedActivationFunc, OperationType, PaddingScheme
from nnburst.executor.graph.extension import VendorExtension
from nnburst.importer.tensors import integers
from nnburst.importer.tflite.operator import Operator

NAME: Final = "com.example.transposed_convolution"
CUSTOM_CODE: Final = "Convolution2DTransposeBias"
_OPTIONS: Final = struct.Struct("<iii")

TRANSPOSED_CONVOLUTION: Final = VendorExtension(NAME)


@TRANSPOSED_CONVOLUTION.lowers(CUSTOM_CODE)
def lower(op: Operator) -> None:
    """Make TRANSPOSE_CONV_2D of it, with the output's extents as in the file."""
    options = op.custom_options
    op.require(len(options) >= _OPTIONS.size, f"{len(options)} bytes of options, expected 12")
    padding, stride_width, stride_height = _OPTIONS.unpack_from(options)
    op.require(padding in (PaddingScheme.SAME, PaddingScheme.VALID), f"padding {padding}")
    image, filters, bias = op.input(0), op.real_input(1, op.input(0)), op.input(2)
    made = op.output_type()
    op.require(len(made.dimensions) == 4, f"an output of shape {list(made.dimensions)}")
    op.emit(
        OperationType.TRANSPOSE_CONV_2D,
        [
            image,
            filters,
            bias,
            integers(np.array(made.dimensions)),
            padding,
            stride_width,
            stride_height,
            int(FusedActivationFunc.NONE),
            False,
        ],
    )
