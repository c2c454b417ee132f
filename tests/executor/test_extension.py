from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.executor.graph.extension import (
    VendorExtension,
    find_definition,
    find_operand_type,
    install,
    install_from,
)
from nnburst.executor.graph.operation import Node, Run
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.extensions import extension_code, number_of, prefix_of


@given(prefix=st.integers(0, 0xFFFF), number=st.integers(0, 0xFFFF))
def test_a_code_has_its_prefix_and_its_number(prefix: int, number: int) -> None:
    code = extension_code(prefix, number)
    assert (prefix_of(code), number_of(code)) == (prefix, number)
    signed = code - 2**32 if code >= 2**31 else code  # as AIDL and HIDL carry it in an int32
    assert (prefix_of(signed), number_of(signed)) == (prefix, number)


def test_the_example_of_the_documentation() -> None:
    assert (prefix_of(0xAAAABBBB), number_of(0xAAAABBBB)) == (0xAAAA, 0xBBBB)


@pytest.mark.parametrize("name", ["fibonacci", "com.Example.x", "", "com example.x", None, 5])
def test_a_name_must_be_like_vendor_dot_extension(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="S4"):
        VendorExtension(name)


def test_numbers_are_unique_and_have_16_bits() -> None:
    extension = VendorExtension("com.example.numbers")
    extension.operand_type(0, "A", np.int64, is_tensor=True)
    for number in (0, -1, 0x10000):
        with pytest.raises(InvalidArgument, match="S4"):
            extension.operand_type(number, "B", np.int64, is_tensor=True)

    @extension.operation(0, "NOTHING", forms=[], rows=[], shape=None)
    def nothing(_node: Node) -> Run:
        raise AssertionError

    for number in (0, -1, 0x10000):
        with pytest.raises(InvalidArgument, match="taken, or not in 0 to"):
            extension.operation(number, "B", forms=[], rows=[], shape=None)
    assert [t.type for t in extension.description.operand_types] == [0]


@pytest.mark.parametrize(
    ("number", "dtype", "is_tensor", "name"),
    [
        ("a", "f4", True, "number"),
        (1.0, "f4", True, "number"),
        (1, "foo", True, "dtype"),
        (1, object, True, "dtype"),
        (1, [("a", object)], True, "dtype"),
        (1, ("f4", 3), True, "dtype"),
        (1, "f4", None, "is_tensor"),
        (1, "f4", 1, "is_tensor"),
    ],
)
def test_a_type_that_no_device_can_report_is_refused_by_the_name_of_the_argument(
    number: Any, dtype: Any, is_tensor: Any, name: str
) -> None:
    extension = VendorExtension("com.example.refused")
    with pytest.raises(InvalidArgument, match=rf"^{name} is "):
        extension.operand_type(number, "T", dtype, is_tensor=is_tensor)
    assert extension.description.operand_types == ()


@pytest.mark.parametrize("number", ["a", 1.0, None, []])
def test_the_number_of_an_operation_is_an_integer(number: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^number is "):
        VendorExtension("com.example.refused").operation(number, "A", forms=[], rows=[], shape=None)


def test_two_extensions_cannot_have_one_name() -> None:
    first = VendorExtension("com.example.twice")
    install(first)
    install(first)
    with pytest.raises(InvalidArgument, match=r"com\.example\.twice is registered twice"):
        install(VendorExtension("com.example.twice"))


def test_types_are_found_by_their_local_codes_once_installed() -> None:
    extension = VendorExtension("com.example.local")
    kind = extension.operand_type(3, "KIND", np.int16, is_tensor=True)
    code = extension_code(extension.local_prefix, 3)
    assert find_operand_type(code) is None
    install(extension)
    assert find_operand_type(code) is kind
    assert find_operand_type(code + 1) is None
    assert find_definition(code) is None


@pytest.mark.parametrize("target", ["json:loads", "json:nothing", "no_such_module:X", "json"])
def test_what_is_not_an_extension_is_not_installed(target: str) -> None:
    with pytest.raises(DeviceUnavailable, match="extension"):
        install_from(target)
