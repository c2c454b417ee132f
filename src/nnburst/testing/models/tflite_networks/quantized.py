"""Networks that change how numbers are stored."""

from __future__ import annotations

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import OUTPUT, QUANTIZATION, network


@network("QUANTIZE", "UINT8", "INT8")
def _quantize(b: TfliteBuilder, kind: str) -> None:
    """Real numbers to integers, to others with another step."""
    x = b.input("FLOAT32", (2, 60))
    first = b.tensor(kind, (2, 60), **QUANTIZATION[kind])
    other = "INT8" if kind == "UINT8" else "UINT8"
    second = b.output(other, (2, 60), **OUTPUT[other])
    b.operator("QUANTIZE", [x], [first])
    b.operator("QUANTIZE", [first], [second])


@network("QUANTIZE-border", "INT8")
def _border(b: TfliteBuilder, kind: str) -> None:
    """An int8 network between uint8 borders."""
    x = b.input("UINT8", (4, 64), scale=0.03125, zero_point=123)
    signed, limited = (b.tensor(kind, (4, 64), **QUANTIZATION[kind]) for _ in range(2))
    b.operator("QUANTIZE", [x], [signed])
    b.operator("RELU", [signed], [limited])
    b.operator("QUANTIZE", [limited], [b.output("UINT8", (4, 64), scale=0.03125, zero_point=123)])
    b.operator("DEQUANTIZE", [limited], [b.output("FLOAT32", (4, 64))])
