"""Written .tflite files are read back, here and by the classes of the format's authors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.formats.tflite_reader import NUMBERS, File, read_format, schema
from nnburst.formats.tflite_writer import NewTable, write

FORMAT = read_format()
#: Deeper than a network's tables are nested.
DEEPEST = 4


@st.composite
def tables(draw: st.DrawFn, kind: str = "", depth: int = 0) -> NewTable:
    """A table of the format with some of its fields."""
    kind = kind or draw(st.sampled_from(sorted(FORMAT.tables)))
    rules = FORMAT.tables[kind]
    chosen = draw(st.lists(st.sampled_from(sorted(rules)), unique=True)) if rules else []
    fields = {name: draw(values(rules[name], depth)) for name in chosen}
    return NewTable(kind, **fields)


def values(rule: tuple[Any, ...], depth: int) -> st.SearchStrategy[Any]:
    """Values of a field."""
    _, kind, *about = rule
    if kind == "number":
        return numbers(about[0])
    if kind == "numbers":
        return st.lists(numbers(about[0]), max_size=9)
    if kind == "string":
        return st.binary(max_size=9)
    if depth == DEEPEST or kind in (
        "union",
        "strings",
    ):  # which table a union holds another field decides
        return st.none()
    one = tables(about[0], depth + 1)
    return one if kind == "table" else st.lists(one, max_size=3)


def numbers(kind: str) -> st.SearchStrategy[Any]:
    """Numbers of one of the format's kinds."""
    if kind == "bool":
        return st.booleans()
    dtype = NUMBERS[kind].dtype
    if dtype.kind == "f":
        return st.floats(width=32 if dtype.itemsize == 4 else 64, allow_nan=False)
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


def read_back(content: bytes, kind: str) -> Any:
    """The root table."""
    table = getattr(schema(), kind)()
    table.Init(File(content), int.from_bytes(content[:4], "little"))
    return table


def check(found: Any, wanted: NewTable, content: bytes) -> None:
    """Compare field by field, and look where vectors lie."""
    for name, rule in FORMAT.tables[wanted.kind].items():
        _, kind, *about = rule
        value = wanted.fields.get(name)
        if kind == "number":
            assert getattr(found, name)() == (about[1] if value is None else value)
        elif value is None:
            continue
        elif kind == "numbers":
            array = getattr(found, f"{name}AsNumpy")()
            assert array.tolist() == np.array(value, array.dtype).tolist()
            start = array.ctypes.data - np.frombuffer(content, np.uint8).ctypes.data
            assert start % (16 if array.itemsize == 1 else array.itemsize) == 0
        elif kind == "string":
            assert getattr(found, name)() == value
        elif kind == "table":
            check(getattr(found, name)(), value, content)
        elif kind == "tables":
            assert getattr(found, f"{name}Length")() == len(value)
            for number, each in enumerate(value):
                check(getattr(found, name)(number), each, content)


@given(tables())
def test_tables_are_read_as_they_were_written(table: NewTable) -> None:
    content = write(table)
    assert content[4:8] == b"TFL3"
    check(read_back(content, table.kind), table, content)


def test_field_that_means_what_its_absence_means_takes_no_room() -> None:
    with_both = NewTable("Conv2DOptions", DilationWFactor=1, Padding=0)
    assert write(with_both) == write(NewTable("Conv2DOptions"))


def test_what_is_not_in_the_format_is_refused() -> None:
    with pytest.raises(KeyError, match="Conv9DOptions"):
        write(NewTable("Conv9DOptions"))
    with pytest.raises(KeyError, match="Strides"):
        write(NewTable("Conv2DOptions", Strides=1))


def test_authors_of_the_format_read_the_same_network() -> None:
    theirs = pytest.importorskip("ai_edge_litert.schema_py_generated")
    options = NewTable("Conv2DOptions", StrideW=2, StrideH=3, FusedActivationFunction=1)
    operator = NewTable(
        "Operator",
        OpcodeIndex=1,
        Inputs=[0, 1],
        Outputs=[2],
        BuiltinOptionsType=1,
        BuiltinOptions=options,
    )
    quantization = NewTable("QuantizationParameters", Scale=[0.5, 2.0], ZeroPoint=[-3, 2**40])
    tensor = NewTable(
        "Tensor", Name=b"x", Shape=[1, 2], Type=9, Buffer=1, Quantization=quantization
    )
    graph = NewTable("SubGraph", Tensors=[tensor], Operators=[operator], Inputs=[0], Outputs=[2])
    buffers = [NewTable("Buffer"), NewTable("Buffer", Data=np.arange(100, dtype=np.uint8))]
    code = NewTable("OperatorCode", BuiltinCode=3, DeprecatedBuiltinCode=3)
    model = NewTable("Model", Version=3, Subgraphs=[graph], Buffers=buffers, OperatorCodes=[code])
    found = theirs.ModelT.InitFromPackedBuf(write(model))
    [read] = found.subgraphs
    assert (found.version, read.inputs.tolist(), read.outputs.tolist()) == (3, [0], [2])
    assert (read.tensors[0].name, read.tensors[0].shape.tolist()) == (b"x", [1, 2])
    assert (read.tensors[0].type, read.tensors[0].buffer) == (9, 1)
    assert read.tensors[0].quantization.scale.tolist() == [0.5, 2.0]
    assert read.tensors[0].quantization.zeroPoint.tolist() == [-3, 2**40]
    assert found.buffers[0].data is None
    assert found.buffers[1].data.tolist() == list(range(100))
    [made] = read.operators
    assert (made.opcodeIndex, made.inputs.tolist(), made.outputs.tolist()) == (1, [0, 1], [2])
    window = made.builtinOptions
    assert (window.strideW, window.strideH, window.fusedActivationFunction) == (2, 3, 1)
    assert (window.dilationWFactor, window.padding) == (1, 0)
    assert (found.operatorCodes[0].builtinCode, found.operatorCodes[0].version) == (3, 1)
