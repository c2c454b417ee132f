"""Writes src/nnburst/_native.pyi: what mypy knows of the C module, from the declarations of csrc/cdef.h.

python tools/native_types.py src/nnburst/_native.pyi
"""

from __future__ import annotations

import keyword
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cffi import cparser, model

CDEF: Final = Path(__file__).resolve().parent.parent / "csrc" / "cdef.h"

_HEAD: Final = '''"""Types of the C module, written by tools/native_types.py from csrc/cdef.h.

A struct stands for itself and for a pointer to it, as its fields are reached alike. Pointers to numbers,
bytes and `void` are Any: cffi takes several kinds of objects for them.
"""

from collections.abc import Callable
from typing import Any, Literal, Self, overload
'''

#: The class that csrc/queue_python.c adds, in its words.
_QUEUE_END: Final = """
class QueueEnd:
    def __init__(
        self, ring: int, flag: int, words: int, writes: bool, quota_allows: bool, spin_window_ns: int,
        quantum: int, keep: object, arrays: object, empty: object, dtype: object,
        elements: Callable[..., object], raise_for: Callable[..., object], /,
    ) -> None: ...
    def write(self, elements: object, timeout: float = 0.0) -> bool: ...
    def read(self, count: int, timeout: float = 0.0) -> Any: ...
    def read_into(self, array: object, timeout: float = 0.0) -> bool: ...
    def send(self, message: object, timeout: float = 0.0) -> bool: ...
    def receive(self, timeout: float = 0.0) -> bytes | None: ...
    def begin(self, count: int, timeout: float, /) -> tuple[int, int, int, int] | None: ...
    def commit(self, count: int, /) -> bool: ...
    def bind(
        self, array: object, memory: object, timeout: float, queue: object, /
    ) -> Callable[[], Any]: ...
    def close(self) -> None: ...
    def watch(self) -> int: ...
    def arm(self, count: int, /) -> bool: ...
    def wake_self(self) -> None: ...
    def peer(self) -> int: ...
    def available(self) -> int: ...
    def statistics(self) -> tuple[int, int, int, int, int]: ...
"""


def _type(found: Any) -> str:  # noqa: ANN401 - cffi's model of a type
    """The Python type of a value of C."""
    if isinstance(found, model.VoidType):
        return "None"
    if isinstance(found, model.EnumType):
        return "int"
    if isinstance(found, model.PrimitiveType):
        return "float" if found.name in {"float", "double"} else "int"
    if isinstance(found, model.PointerType):
        found = found.totype
        return found.name if _is_named(found) else "Any"
    return found.name if _is_named(found) else "Any"


def _is_named(found: Any) -> bool:  # noqa: ANN401
    return isinstance(found, model.StructType) and not found.name.startswith("$")


def _struct(found: Any) -> Iterator[str]:  # noqa: ANN401
    yield f"class {found.name}:"
    for name, kind in zip(found.fldnames or (), found.fldtypes or (), strict=True):
        if not keyword.iskeyword(name):  # reached by getattr alone
            yield f"    {name}: {_type(kind)}"
    yield "    def __getitem__(self, index: int) -> Self: ..."
    yield ""


def _function(name: str, found: Any) -> str:  # noqa: ANN401
    parameters = [f"a{index}: {_type(kind)}" for index, kind in enumerate(found.args)]
    variadic = ["*rest: Any"] if found.ellipsis else []
    given = ", ".join(["self", *parameters, *(["/"] if parameters else []), *variadic])
    return f"    def {name}({given}) -> {_type(found.result)}: ..."


def stub() -> str:
    """The text of the stub."""
    parser = cparser.Parser()
    parser.parse(CDEF.read_text(encoding="utf-8"))
    found = {name: kind for name, (kind, _) in parser._declarations.items()}
    structs = [kind for name, kind in found.items() if name.startswith("struct ")]
    lines = [_HEAD]
    for kind in structs:
        lines += _struct(kind)
    lines.append("class _Lib:")
    for name, kind in found.items():
        word, _, rest = name.partition(" ")
        if word == "function":
            lines.append(_function(rest, kind))
        elif word in {"macro", "constant", "variable"}:
            lines.append(f"    {rest}: int")
    lines += [f"    {name}: int" for name in parser._int_constants]
    lines += ["", "class _Ffi:", "    NULL: Any", "    CData: type", "    errno: int"]
    for kind in structs:
        literal = f'Literal["struct {kind.name} *"]'
        lines += [
            "    @overload",
            f"    def new(self, kind: {literal}, init: object = ..., /) -> {kind.name}: ...",
        ]
    lines += ["    @overload", "    def new(self, kind: str, init: object = ..., /) -> Any: ..."]
    lines += [
        "    def cast(self, kind: str, value: object, /) -> Any: ...",
        "    def from_buffer(self, *arguments: object, require_writable: bool = ...) -> Any: ...",
        "    def buffer(self, data: object, size: int = ..., /) -> Any: ...",
        "    def string(self, data: object, most: int = ..., /) -> bytes: ...",
        "    def addressof(self, data: object, *fields: str | int) -> Any: ...",
        "    def sizeof(self, kind: object, /) -> int: ...",
        "    def gc(self, data: object, destroy: object, size: int = ...) -> Any: ...",
        "    def release(self, data: object, /) -> None: ...",
        "    def typeof(self, kind: object, /) -> Any: ...",
        "    def offsetof(self, kind: str, *fields: str) -> int: ...",
        "    def new_handle(self, value: object, /) -> Any: ...",
        "    def from_handle(self, handle: object, /) -> Any: ...",
        "    def unpack(self, data: object, length: int, /) -> Any: ...",
        "    def memmove(self, target: object, source: object, size: int, /) -> None: ...",
        "    def def_extern(self, *arguments: object, **options: object) -> Callable[[Any], Any]: ...",
        "",
        "lib: _Lib",
        "ffi: _Ffi",
        "",
    ]
    lines.append(_QUEUE_END)
    return "\n".join(lines)


if __name__ == "__main__":
    path = sys.argv[1]
    Path(path).write_text(stub(), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "format", "--quiet", path]
    subprocess.run(command, check=True)  # noqa: S603 - ours
