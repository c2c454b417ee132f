"""Run the Fibonacci extension in a driver process: `python main.py` beside nnburst_fibonacci.py."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from nnburst_fibonacci import (
    FIBONACCI_OPERATION,
    INT64,
    NAME,
    TENSOR_QUANT64_ASYMM,
    Quantization,
)

import nnburst


def build_model(quantization: Quantization) -> nnburst.Model:
    """N (INT64) → the first n Fibonacci numbers, quantised."""
    builder = nnburst.ModelBuilder()
    extension = builder.extension(NAME)
    n = builder.input(extension.operand_type(INT64))
    numbers = builder.output(
        extension.operand_type(TENSOR_QUANT64_ASYMM), (0,), extra_params=quantization.pack()
    )
    builder.operation(extension.operation_type(FIBONACCI_OPERATION), [n], [numbers])
    return builder.build()


def main() -> None:
    """Ask a driver for ten numbers, by a burst."""
    # If the extension is installed, its entry point makes it known; here it is named.
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    quantization = Quantization(scale=0.5, zero_point=7)
    with nnburst.launch(
        "reference", extensions=["nnburst_fibonacci:FIBONACCI"], env={"PYTHONPATH": path}
    ) as device:
        print("extensions:", ", ".join(e.name for e in device.supported_extensions()))
        prepared = device.prepare(build_model(quantization))
        with prepared, prepared.open_burst() as burst:
            result = burst.execute([np.array(10, np.int64)])
        stored = result.outputs[0].view(np.int64)
        print("stored:", *stored)
        print("values:", *(quantization.scale * (stored - quantization.zero_point)))


if __name__ == "__main__":
    main()
