"""The API page and the classes: what is public is on the page, and what is on the page exists."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import msgspec
import pytest

import nnburst
from nnburst import ExecutionResult
from nnburst.hal import errors

#: What `nnburst.ray` imports; its names are compared also if the extra is not installed.
FOREIGN: Final = (
    "ray",
    "ray.exceptions",
    "grpc",
    "tritonclient",
    "tritonclient.grpc",
    "tritonclient.utils",
)


def import_ray() -> None:
    """Import `nnburst.ray`, with stand-ins for what is missing, which are gone afterwards."""
    stood_in = []
    for name in FOREIGN:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            sys.modules[name] = MagicMock(__path__=[], __spec__=None)
            stood_in.append(name)
    importlib.import_module("nnburst.ray")
    for name in stood_in:
        del sys.modules[name]


import_ray()

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
#: The page that new programs need, and the one of NNAPI's own names.
FIRST: Final = DOCS / "api.md"
PAGES: Final = (FIRST, DOCS / "api_nnapi.md")
_DIRECTIVE: Final = re.compile(
    r"^\.\. auto(class|exception|function|module):: (\S+)\n((?:   :.*\n(?:      .*\n)*)*)",
    re.MULTILINE,
)
_MEMBERS: Final = re.compile(r":members:((?:[ ]+.*|\n      .*)*)")


@cache
def entries(pages: tuple[Path, ...] = PAGES) -> dict[str, tuple[str, tuple[str, ...] | None]]:
    """The names that the pages print, each with its kind and its members; None for all members."""
    found = {}
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for kind, name, options in _DIRECTIVE.findall(text):
        listed = _MEMBERS.search(options)
        words = tuple(re.findall(r"\w+", listed[1])) if listed else ()
        found[name] = kind, None if listed and not words else words
    return found


def resolve(name: str) -> Any:
    """The object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def lists_itself(kind: type) -> bool:
    """Whether the page needs no list of members: codes, and fields that the docstring describes."""
    return issubclass(kind, enum.Enum | BaseException | msgspec.Struct) or dataclasses.is_dataclass(
        kind
    )


def classes() -> list[str]:
    """The classes on the page whose members are listed one by one."""
    return [
        n for n, (kind, _) in entries().items() if kind == "class" and not lists_itself(resolve(n))
    ]


def own_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("nnburst")]


def members(kind: type) -> set[str]:
    """Public methods, properties and attributes of a class, those of our bases included."""
    return {n for base in own_bases(kind) for n in vars(base) if not n.startswith("_")}


def slots(kind: type) -> set[str]:
    return {name for base in own_bases(kind) for name in vars(base).get("__slots__", ())}


def attributes(kind: type) -> set[str]:
    """Public names that the class assigns to itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and not node.attr.startswith("_")
    } - (members(kind) - slots(kind))


def described(kind: type) -> set[str]:
    """Names in the `Attributes` of its docstring."""
    part = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    return set(re.findall(r"^    (\w+):", part, re.MULTILINE))


def fields(kind: type) -> set[str]:
    """Public names that an object of the class has."""
    declared = {name for base in own_bases(kind) for name in vars(base).get("__annotations__", ())}
    assigned = {name for base in own_bases(kind) for name in attributes(base)}
    return members(kind) | declared | assigned


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions, constructors and methods that the page has, by name."""
    for name, (kind, listed) in entries().items():
        found = resolve(name)
        if kind == "function":
            yield name, found
        elif inspect.isclass(found):
            for member in ("__init__", *(listed or ())):
                function = inspect.getattr_static(found, member)
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function):
                    yield f"{name}.{member}", function


def described_arguments(function: Callable[..., Any]) -> list[str]:
    """Names in the `Args` of its docstring."""
    part = (inspect.getdoc(function) or "").partition("Args:\n")[2]
    part = re.split(r"^\S", part, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^    (\w+):", part, re.MULTILINE)


def test_every_name_on_the_page_exists() -> None:
    missing = []
    for name, (_, listed) in entries().items():
        found = resolve(name)
        missing += [f"{name}.{member}" for member in listed or () if not hasattr(found, member)]
    assert missing == []


@pytest.mark.parametrize("name", classes())
def test_public_members_are_those_on_the_page(name: str) -> None:
    kind, listed = resolve(name), entries()[name][1]
    assert set(listed or ()) - {"__call__"} == members(kind) - slots(kind)


@pytest.mark.parametrize("name", classes())
def test_public_members_have_a_docstring_and_attributes_a_line(name: str) -> None:
    kind = resolve(name)
    silent = {n for n in entries()[name][1] or () if not inspect.getdoc(getattr(kind, n))}
    assert silent | (attributes(kind) - described(kind)) == set()


@pytest.mark.parametrize("name", entries())
def test_help_shows_each_name_on_the_page(name: str) -> None:
    assert inspect.cleandoc(inspect.getdoc(resolve(name)) or "?").splitlines()[
        0
    ] in pydoc.render_doc(resolve(name), renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", [n for n, (kind, _) in entries().items() if kind != "module"])
def test_described_attributes_exist(name: str) -> None:
    kind = resolve(name)
    if inspect.isclass(kind):
        assert described(kind) - fields(kind) == set()


def test_described_arguments_are_those_of_the_signature() -> None:
    wrong = {}
    for name, function in functions():
        taken = [n for n in inspect.signature(function).parameters if n not in ("self", "cls")]
        described = described_arguments(function)
        if described not in ([], taken):
            wrong[name] = described
    assert wrong == {}


def concrete(kind: type) -> set[type]:
    """The class, or the classes of ours that make it whole if it is abstract."""
    if not inspect.isabstract(kind):
        return {kind}
    return {each for derived in kind.__subclasses__() for each in concrete(derived)}


def test_objects_of_the_page_are_printed_with_their_facts() -> None:
    kinds = {each for name in classes() for each in concrete(resolve(name))}
    shown = {each for each in kinds if not getattr(each, "_is_protocol", False)}
    assert len(shown) > 40
    assert {each for each in shown if each.__repr__ is object.__repr__} == set()


def test_public_names_are_on_the_page() -> None:
    on_page = {resolve(name) for name in entries()}
    assert [n for n in nnburst.__all__ if getattr(nnburst, n) not in on_page] == []


def test_errors_that_pages_for_users_name_are_public_names() -> None:
    pages = [
        *DOCS.glob("tutorial/*.md"),
        *DOCS.glob("how_to/*.md"),
        DOCS / "queue_burst_or_pipe.md",
    ]
    words = {
        word for page in pages for word in re.findall(r"`(?:nnburst\.)?(\w+)`", page.read_text())
    }
    named = {word for word in words if isinstance(getattr(errors, word, None), type)}
    assert len(named) > 5
    assert named - set(nnburst.__all__) == set()


def test_public_names_of_the_hal_are_on_the_page() -> None:
    package = importlib.import_module("nnburst.hal")
    on_page = {resolve(name) for name in entries()}
    assert [n for n in package.__all__ if getattr(package, n) not in on_page] == []


def test_the_first_page_has_at_most_four_ways_to_execute_once() -> None:
    ways, hal = set(), set(importlib.import_module("nnburst.hal").__all__)
    for name, (_, listed) in entries((FIRST,)).items():
        assert hal.isdisjoint({name.removeprefix("nnburst.hal."), *(listed or ())})
        found = resolve(name)
        for member in listed or ():
            # What an await or a thread gets later is begun by another way.
            later = member.endswith("_async") or member == "result"
            if not later and executes(inspect.getattr_static(found, member)):
                is_model = hasattr(found, "open_burst")
                ways.add(("model" if is_model else found.__name__, member))
    assert ways == {
        ("model", "execute"),
        ("Burst", "execute"),
        ("BurstFunction", "__call__"),
        ("BoundRequest", "run"),
    }


def executes(member: Any) -> bool:
    """Whether a method returns what an execution gives."""
    if not inspect.isfunction(member) or inspect.isgeneratorfunction(member):
        return False
    try:
        hint = typing.get_type_hints(member).get("return")
    except (NameError, TypeError):  # a name for type checkers only
        return False
    return hint is ExecutionResult or member.__qualname__ == "BurstFunction.__call__"


def test_type_checkers_know_the_names_of_the_hal() -> None:
    package = importlib.import_module("nnburst.hal")
    stub = Path(package.__file__ or "").with_suffix(".pyi").read_text(encoding="utf-8")
    told = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(told) == sorted(package.__all__)  # type: ignore[type-var] # each has a name
    assert [n for n, home in told.items() if resolve(home) is not getattr(package, n or "")] == []


def test_public_names_of_ray_are_on_the_page() -> None:
    package = importlib.import_module("nnburst.ray")
    on_page = {resolve(name) for name in entries()}
    assert [n for n in package.__all__ if getattr(package, n) not in on_page] == []


def test_what_public_members_return_is_on_the_page() -> None:
    on_page = {resolve(name) for name, (kind, _) in entries().items() if kind != "module"}
    missing = {
        f"{kind.__module__}.{kind.__qualname__}"
        for name in classes()
        for member in entries()[name][1] or ()
        for kind in returned(inspect.getattr_static(resolve(name), member))
        if kind not in on_page
    }
    assert missing == set()


def returned(member: Any) -> Iterator[type]:
    """Classes of ours in what a method or property returns."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):  # a name for type checkers only
        return
    pending = [hint]
    while pending:
        found = pending.pop()
        pending += typing.get_args(found)
        if isinstance(found, type) and found.__module__.startswith("nnburst"):
            yield found


@pytest.mark.parametrize(
    ("statement", "package", "extra"),
    [
        ("import nnburst.ray", "grpc", "ray"),
        ("import nnburst.litert; nnburst.litert.load_delegate()", "ai_edge_litert", "litert"),
        (
            "import nnburst.onnxruntime; nnburst.onnxruntime.add_provider(None)",
            "onnxruntime",
            "onnxruntime",
        ),
    ],
)
def test_missing_extra_is_named_with_its_pip_line(statement: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; {statement}"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith(f": pip install 'nnburst[{extra}]'")
