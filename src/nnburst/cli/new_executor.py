"""`nnburst new-executor`: writes a new executor with its tests, a package in Python or a library in C."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from nnburst.cli.options import Subparsers
from nnburst.executor.built_in import BUILT_IN
from nnburst.hal.errors import InvalidArgument

#: A module's name, and a device's: as long as the one of a library may be.
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
#: Modules that the package and its tests import, which a module of the same name would hide.
_IMPORTED: Final = {
    "cffi",
    "msgspec",
    "nnburst",
    "numpy",
    "posix_ipc",
    "pytest",
} | sys.stdlib_module_names
_TEMPLATE: Final = ("adder", "Adder")

_PROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
description = "An executor for nnburst"
requires-python = ">=3.11"
dependencies = ["nnburst"]

[project.optional-dependencies]
test = ["nnburst[test]"]

[project.entry-points."nnburst.executors"]
{name} = "{name}:{attribute}"

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]
"""
_README: Final = """\
# {name}

An executor for nnburst. It adds float32 tensors of one shape; it learns more in `src/{name}/executor.py`.

    pip install -e ".[test]"
    pytest
    nnburst conformance --device {name} --report report
    nnburst serve {name} --executor {name}
"""
_TESTS: Final = '''\
"""The executor conforms, and adds."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import nnburst
from nnburst import OperandType, OperationType

EXECUTOR = "{name}:{attribute}"
SOURCE = Path(__file__).resolve().parent.parent / "src"


def test_executor_conforms(tmp_path):
    command = [sys.executable, "-m", "nnburst", "conformance", "--device", EXECUTOR]
    # Take the last words away once it does more: everything takes some minutes.
    words = ["--profile", "basic", "--operation", "ADD", "--require", "ADD:TENSOR_FLOAT32"]
    done = subprocess.run(
        [*command, *words],
        cwd=tmp_path,
        env={{**os.environ, "PYTHONPATH": str(SOURCE)}},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sums_are_right(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    builder = nnburst.ModelBuilder()
    a, b = (builder.input(OperandType.TENSOR_FLOAT32, (2, 3)) for _ in range(2))
    total = builder.output(OperandType.TENSOR_FLOAT32, (2, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [total])
    x, y = (np.arange(6, dtype=np.float32).reshape(2, 3) + n for n in (0, 10))
    with nnburst.launch(EXECUTOR) as device, device.prepare(builder.build()) as prepared:
        np.testing.assert_array_equal(prepared.execute([x, y]).outputs[0], x + y)
'''
_MAKEFILE: Final = """\
NNBURST ?= nnburst
PYTHON ?= python3
CFLAGS ?= -O2
FLAGS = -std=c11 -Wall -Wextra -Wpedantic -Werror $(CFLAGS) $(shell $(NNBURST) executor --cflags)

all: lib{name}.so

lib{name}.so: {name}.c
	$(CC) $(FLAGS) -shared -fPIC $< -o $@

check: lib{name}.so
	$(PYTHON) -m pytest -q tests

clean:
	rm -f lib{name}.so

.PHONY: all check clean
"""
_C_README: Final = """\
# {name}

An executor for nnburst, in C. It adds float32 tensors of one shape; it learns more in `{name}.c`. Everything
it has to keep to is in the header, whose path `nnburst executor --header` prints.

    make -s all check
    nnburst conformance --device ./lib{name}.so --report report
    nnburst serve {name} --executor ./lib{name}.so
"""
_C_TESTS: Final = '''\
"""The executor conforms, and adds. `make` builds it first."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import nnburst
from nnburst import OperandType, OperationType

LIBRARY = Path(__file__).resolve().parent.parent / "lib{name}.so"


def test_executor_conforms(tmp_path):
    command = [sys.executable, "-m", "nnburst", "conformance", "--device", str(LIBRARY)]
    # Take the last words away once it does more: everything takes some minutes.
    words = ["--profile", "basic", "--operation", "ADD", "--require", "ADD:TENSOR_FLOAT32"]
    done = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sums_are_right():
    builder = nnburst.ModelBuilder()
    a, b = (builder.input(OperandType.TENSOR_FLOAT32, (2, 3)) for _ in range(2))
    total = builder.output(OperandType.TENSOR_FLOAT32, (2, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [total])
    x, y = (np.arange(6, dtype=np.float32).reshape(2, 3) + n for n in (0, 10))
    with nnburst.launch(str(LIBRARY)) as device, device.prepare(builder.build()) as prepared:
        np.testing.assert_array_equal(prepared.execute([x, y]).outputs[0], x + y)
'''


def write_library(name: str, parent: Path) -> list[Path]:
    """Write an executor in C that computes ADD, with a Makefile.

    Args:
        name: of the library and its device: a lower case letter, then letters, digits and underscores.
        parent: folder that gets the folder `name`, which must not exist.

    Returns:
        The files, relative to `parent`.

    Raises:
        InvalidArgument: the name is not valid or is taken, or the folder exists.
    """
    source = (files("nnburst.testing") / "executor.c.in").read_text(encoding="utf-8")
    texts = {
        "Makefile": _MAKEFILE.format(name=name),
        "README.md": _C_README.format(name=name),
        f"{name}.c": source,
        f"tests/test_{name}.py": _C_TESTS.format(name=name),
    }
    return _write(name, parent, texts)


def write_package(name: str, parent: Path) -> list[Path]:
    """Write a Python package with an executor that computes ADD.

    Args:
        name: of the package, its module and its executor; as for `write_library`.
        parent: folder that gets the folder `name`, which must not exist.

    Returns:
        The files, relative to `parent`.

    Raises:
        InvalidArgument: the name is not valid or is taken, or the folder exists.
    """
    attribute = "".join(word.capitalize() for word in name.split("_"))
    words = {"name": name, "attribute": attribute, "distribution": name.replace("_", "-")}
    texts = {
        "pyproject.toml": _PROJECT.format(**words),
        "README.md": _README.format(**words),
        f"src/{name}/__init__.py": _package(name, attribute),
        f"src/{name}/executor.py": _executor(name, attribute),
        "tests/test_executor.py": _TESTS.format(**words),
    }
    return _write(name, parent, texts)


def _write(name: str, parent: Path, texts: Mapping[str, str]) -> list[Path]:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name: {name!r}, expected a lower case letter, and up to 63 more, digits and underscores"
        )
    if name in BUILT_IN:
        raise InvalidArgument(f"name: {name!r} is a built-in executor's")
    if keyword.iskeyword(name) or name in _IMPORTED:
        raise InvalidArgument(f"name: {name!r} is a keyword of Python, or a module that exists")
    folder = parent / name
    if folder.exists():
        raise InvalidArgument(f"name: {folder} exists already")
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    return [Path(name) / place for place in texts]


def _package(name: str, attribute: str) -> str:
    return (
        f'"""An executor for nnburst."""\n\nfrom {name}.executor import {attribute}\n\n'
        f'__all__ = ["{attribute}"]\n'
    )


def _executor(name: str, attribute: str) -> str:
    text = (files("nnburst.testing") / "executor.py.in").read_text(encoding="utf-8")
    for old, new in (
        (f'"{_TEMPLATE[0]}"', f'"{name}"'),
        (f"class {_TEMPLATE[1]}(", f"class {attribute}("),
    ):
        assert old in text
        text = text.replace(old, new)
    return f'"""Adds float32 tensors of one shape."""\n\n{text}'


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "new-executor",
        help="write an executor of your own, to begin with",
        description=__doc__,
    )
    parser.add_argument("name", help="name of the package and its executor, for example my_adder")
    parser.add_argument(
        "--language",
        choices=("python", "c"),
        default="python",
        help="python: a package with an entry point (default); c: a shared library with a Makefile",
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder that the package is written to (default: here)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the executor, and print what to do next."""
    folder = shlex.quote(str(args.into / args.name))
    if args.language == "c":
        for path in write_library(args.name, args.into):
            print(path)
        print(f"\ncd {folder} && make -s all check")
        print(f"nnburst conformance --device ./lib{args.name}.so")
        return 0
    for path in write_package(args.name, args.into):
        print(path)
    print(f"\ncd {folder} && pip install -e . && pytest")
    print(f"nnburst conformance --device {args.name}")
    return 0
