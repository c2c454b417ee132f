"""Tables that decorated functions enter themselves into."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nnburst.hal.utils import registers


def test_decorated_function_is_found_by_each_of_its_keys() -> None:
    table: dict[str, Callable[[], int]] = {}

    @registers(table, "one", "two")
    def number() -> int:
        return 12

    assert table == {"one": number, "two": number}
    assert number() == 12


def test_key_that_has_a_function_is_refused_and_keeps_it() -> None:
    table: dict[str, Callable[[], int]] = {"one": lambda: 1}
    before = table["one"]
    with pytest.raises(ValueError, match="'one' is registered twice"):
        registers(table, "one")(lambda: 2)
    assert table["one"] is before
