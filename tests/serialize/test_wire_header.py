"""The C header, the dtypes and the packers agree with the table."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from nnburst.serialize.wire import (
    DATUM_BYTES,
    REQUEST,
    REQUEST_DATUM,
    RESULT,
    RESULT_DATUM,
    DatumUnion,
    Field,
    Variant,
)
from wire_header import _union, header, main

COMMITTED = Path(__file__).parents[2] / "csrc" / "wire.h"
UNIONS = [(REQUEST, REQUEST_DATUM), (RESULT, RESULT_DATUM)]
VARIANTS = [(dtype, variant) for union, dtype in UNIONS for variant in union.variants]


def test_committed_header_equals_generated_one(tmp_path: Path) -> None:
    main(str(tmp_path / "wire.h"))
    assert COMMITTED.read_text() == header() == (tmp_path / "wire.h").read_text()


def test_command_writes_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wire_header")
    monkeypatch.setattr(sys, "argv", ["wire_header", str(tmp_path / "wire.h")])
    runpy.run_module("wire_header", run_name="__main__")
    assert (tmp_path / "wire.h").read_text() == header()


def test_field_with_two_offsets_has_no_header() -> None:
    variants = [Variant(f"v{n}", n, (Field("value", 4 * n + 4, "u32"),)) for n in range(2)]
    with pytest.raises(ValueError, match="field value has two offsets"):
        list(_union(DatumUnion("Datum", "NNB", tuple(variants))))
    same = [variants[0], variants[0]._replace(name="v1", discriminator=1)]
    assert list(_union(DatumUnion("Datum", "NNB", tuple(same))))[-1] == "#define NNB_VALUE_OFFSET 4"


def test_header_names_layout_facts() -> None:
    lines = header().splitlines()
    assert "#define NNB_REQUEST_MEASURE_TIMING 6" in lines
    assert "#define NNB_RESULT_TIME_IN_DRIVER_OFFSET 16" in lines
    assert "#define NNB_STATUS_GENERAL_FAILURE 2" in lines
    assert "#define NNB_FMQ_NOT_EMPTY 2" in lines


@pytest.mark.parametrize(("union", "dtype"), UNIONS)
def test_items_are_24_bytes_and_discriminators_count_from_zero(
    union: DatumUnion, dtype: np.dtype
) -> None:
    assert dtype.itemsize == DATUM_BYTES == 24
    assert [v.discriminator for v in union.variants] == list(range(len(union.variants)))


@pytest.mark.parametrize(
    ("dtype", "variant"), VARIANTS, ids=[f"{len(d)}-{v.name}" for d, v in VARIANTS]
)
def test_dtype_and_layout_agree_on_every_field(dtype: np.dtype, variant: Variant) -> None:
    layout = variant.layout()
    assert layout.size == DATUM_BYTES
    values = list(range(1, len(variant.fields) + 1))
    item = np.frombuffer(layout.pack(variant.discriminator, *values), dtype)
    assert item["discriminator"] == variant.discriminator
    assert [variant.view(item)[f.name][0] for f in variant.fields] == values
    assert variant.view(item)["discriminator"] == variant.discriminator
    for field, value in zip(variant.fields, values, strict=True):
        assert item.tobytes()[field.offset] == value


@pytest.mark.parametrize("dtype", [REQUEST_DATUM, RESULT_DATUM])
def test_numpy_copies_keep_every_byte(dtype: np.dtype) -> None:
    items = np.frombuffer(bytes(range(96)), dtype)
    assert items.copy().tobytes() == bytes(range(96))
    assert items[[3, 2, 1, 0]][::-1].tobytes() == bytes(range(96))
    target = np.empty(4, dtype)
    target[:] = items
    assert target.tobytes() == bytes(range(96))
    assert np.concatenate([items[:2], items[2:]]).tobytes() == bytes(range(96))
