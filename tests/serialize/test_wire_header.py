"""The C header, the dtypes and the packers say the same as the table."""

from pathlib import Path

import numpy as np
import pytest

from nnburst.serialize.wire import DATUM_BYTES, REQUEST, REQUEST_DATUM, RESULT, RESULT_DATUM
from nnburst.serialize.wire_header import header, main

COMMITTED = Path(__file__).parents[2] / "csrc" / "wire.h"
UNIONS = [(REQUEST, REQUEST_DATUM), (RESULT, RESULT_DATUM)]
VARIANTS = [(dtype, variant) for union, dtype in UNIONS for variant in union.variants]


def test_committed_header_equals_generated_one(tmp_path: Path) -> None:
    main(str(tmp_path / "wire.h"))
    assert COMMITTED.read_text() == header() == (tmp_path / "wire.h").read_text()


def test_header_names_layout_facts() -> None:
    lines = header().splitlines()
    assert "#define NNB_REQUEST_MEASURE_TIMING 6" in lines
    assert "#define NNB_RESULT_TIME_IN_DRIVER_OFFSET 16" in lines
    assert "#define NNB_STATUS_GENERAL_FAILURE 2" in lines
    assert "#define NNB_FMQ_NOT_EMPTY 2" in lines


@pytest.mark.parametrize(("union", "dtype"), UNIONS)
def test_items_are_24_bytes_and_discriminators_count_from_zero(union, dtype) -> None:
    assert dtype.itemsize == DATUM_BYTES == 24
    assert [v.discriminator for v in union.variants] == list(range(len(union.variants)))


@pytest.mark.parametrize(
    ("dtype", "variant"), VARIANTS, ids=[f"{d.names[1]}-{v.name}" for d, v in VARIANTS]
)
def test_dtype_and_packer_agree_on_every_field(dtype, variant) -> None:
    packer = variant.unpacker()
    assert packer.size == DATUM_BYTES
    values = list(range(1, len(variant.fields) + 1))
    item = np.frombuffer(packer.pack(variant.discriminator, *values), dtype)[0]
    assert item["discriminator"] == variant.discriminator
    assert [item[variant.name][f.name] for f in variant.fields] == values
    for field, value in zip(variant.fields, values, strict=True):
        assert item.tobytes()[field.offset] == value
