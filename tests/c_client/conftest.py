"""A service with a few networks, and programs that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from c_client.interface import LIBRARY, connected, library
from capi.conftest import compiled
from client.service import Service
from nnburst.capi import installed

#: Compiles a source text; the program.
Compile: TypeAlias = Callable[..., Path]

NETWORKS = tuple(
    f"{name}=serving.networks:{name}" for name in ("add", "both", "quantised", "accumulate")
)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service that the tests of a file share; they kill only their own workers."""
    with Service(*NETWORKS, "add@3=serving.networks:both") as service:
        yield service


@pytest.fixture
def device(service: Service) -> Iterator[Any]:
    """A connection of the test's own."""
    library()
    device = connected(service.address)
    yield device
    library().nnburst_close_device(device)


@pytest.fixture
def compile_program(tmp_path: Path) -> Compile:
    """Compiles C, or C++ if the compiler's name has a +; skips without compiler or library."""

    def compile_(text: str, *flags: str, compiler: str = "gcc", name: str = "program") -> Path:
        words = ["-std=c++11" if "+" in compiler else "-std=gnu99", "-O1"]
        libraries = [*flags, *installed.libs(client=True).split(), "-ldl"]
        return compiled(text, tmp_path / name, compiler, LIBRARY, words, libraries)

    return compile_
