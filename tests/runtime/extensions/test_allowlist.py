"""Which programs may use extensions (RTT:X2 to X4), and how that is configured here."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation
from nnburst.runtime import Model, OperandDescription, extensions
from nnburst.runtime.extensions import (
    TYPES,
    Allowlist,
    Package,
    Program,
    System,
    may_use_extensions,
)
from runtime.building import bad_data

NOTHING = Allowlist()
APP_PROCESSES = ["/system/bin/app_process64", "/system/bin/app_process32"]
NAME = "com.example.camera"


@pytest.mark.parametrize("level", [None, 31, 33])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("path", "denies_product", "allowed"),
    [
        ("/data/foo", False, True),
        ("/vendor/foo", False, True),
        ("/odm/foo", True, True),
        ("/product/foo", False, True),
        ("/product/foo", True, False),
        ("", False, False),
        ("/foobar", False, False),
        ("/system/foo", False, False),
    ],
)
def test_where_a_program_lies_decides_from_level_31_on(
    level: int | None, listed: bool, path: str, denies_product: bool, allowed: bool
) -> None:
    allowlist = Allowlist([path] if listed and path else [])
    system = System(api_level=level, denies_product=denies_product)
    assert may_use_extensions(Program(path), system, allowlist) == allowed


APPS = [
    (Package(NAME), False, True),
    (Package(NAME, is_system=True), False, False),
    (Package(NAME, is_system=True, is_on_vendor=True), True, True),
    (Package(NAME, is_system=True, is_on_product=True), False, True),
    (Package(NAME, is_system=True, is_on_product=True), True, False),
]


@pytest.mark.parametrize("path", APP_PROCESSES)
@pytest.mark.parametrize(("package", "denies_product", "allowed"), APPS)
def test_the_package_of_an_app_decides(
    path: str, package: Package, denies_product: bool, allowed: bool
) -> None:
    system = System(api_level=31, denies_product=denies_product)
    assert may_use_extensions(Program(path, package), system, NOTHING) == allowed
    assert not may_use_extensions(Program("/system/bin/other", package), system, NOTHING)
    assert not may_use_extensions(Program(path), system, NOTHING)


@pytest.mark.parametrize("path", ["/data/foo", "/vendor/foo", "/odm/foo", "/product/foo"])
def test_below_level_31_a_program_is_listed_too(path: str) -> None:
    system = System(api_level=30)
    assert not may_use_extensions(Program(path), system, Allowlist(["/data/other"]))
    assert may_use_extensions(Program(path), system, Allowlist(["/data/other", path]))
    assert not may_use_extensions(Program("/system/foo"), system, Allowlist(["/system/foo"]))


@pytest.mark.parametrize("path", APP_PROCESSES)
@pytest.mark.parametrize(("package", "denies_product", "allowed"), APPS)
def test_below_level_31_a_package_is_listed_too(
    path: str, package: Package, denies_product: bool, allowed: bool
) -> None:
    system = System(api_level=30, denies_product=denies_product)
    assert not may_use_extensions(Program(path, package), system, NOTHING)
    assert may_use_extensions(Program(path, package), system, Allowlist([NAME])) == allowed


@pytest.mark.parametrize("path", ["/data/nativetest64/foo", "/data/local/tmp/foo"])
def test_native_tests_count_as_listed_on_a_debuggable_system(path: str) -> None:
    for is_debuggable in (False, True):
        system = System(api_level=30, is_debuggable=is_debuggable)
        assert may_use_extensions(Program(path), system, NOTHING) == is_debuggable


def test_an_entry_is_a_path_or_has_a_dot(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "nnburst")
    allowlist = Allowlist(["/usr/bin/one", "", "  my.program ", "nonsense"], "the file")
    assert "/usr/bin/one" in allowlist
    assert "my.program" in allowlist
    assert "nonsense" not in allowlist
    assert "the file: entry 'nonsense'" in caplog.text


USE = """
from nnburst.hal.errors import InvalidArgument
from nnburst.runtime.extensions import check_permission
try:
    check_permission("add_operand")
    print("allowed")
except InvalidArgument as error:
    print(error)
"""


def asked(folder: Path, entries: list[str] | None, *, as_module: bool = False) -> str:
    """The answer to a program in `folder` if the file has these entries; None for no file."""
    package = folder / "tried"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "program.py").write_text(USE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    environment.pop("PYTHONSAFEPATH", None)
    if entries is not None:
        (folder / "list").write_text("\n".join(entries))
        environment["NNBURST_EXTENSIONS_ALLOWLIST"] = str(folder / "list")
    how = ["-m", "tried.program"] if as_module else [str(package / "program.py")]
    ended = subprocess.run(
        [sys.executable, *how], env=environment, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def test_every_program_may_use_extensions_unless_a_file_lists_some(tmp_path: Path) -> None:
    script = str((tmp_path / "tried" / "program.py").resolve())
    if not extensions.EXTENSIONS_ALLOWLIST.read({}).exists():
        assert asked(tmp_path, None) == "allowed"
    for entries in ([script], [os.path.realpath(sys.executable)]):
        assert asked(tmp_path, entries) == "allowed"
    refused = asked(tmp_path, ["/usr/bin/other", "tried.program"])
    assert refused.startswith("add_operand: this program may not use extensions: ")
    assert script in refused


def test_what_a_program_may_not_use_is_not_part_of_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "com.example.listed"
    TYPES.register(Extension(name, (ExtensionOperandTypeInformation(0, False, 8),)), "a device")
    kind = Model.extension_operand_type(name, 0)
    (tmp_path / "list").write_text("/usr/bin/other\n")
    monkeypatch.setenv("NNBURST_EXTENSIONS_ALLOWLIST", str(tmp_path / "list"))
    extensions.refusal.cache_clear()
    try:
        model = Model()
        with bad_data():
            model.add_operand(OperandDescription(kind))
        with bad_data():
            model.add_operation(Model.extension_operation_type(name, 0), [], [])
        assert model.add_operand(OperandDescription(OperandType.INT32)) == 0
    finally:
        extensions.refusal.cache_clear()
    monkeypatch.undo()
    assert Model().add_operand(OperandDescription(kind)) == 0


def test_a_module_is_listed_by_its_name(tmp_path: Path) -> None:
    assert asked(tmp_path, ["tried.program"], as_module=True) == "allowed"
    assert "may not use" in asked(tmp_path, ["tried.other"], as_module=True)


def test_a_file_that_is_named_and_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBURST_EXTENSIONS_ALLOWLIST", "/nowhere/list")
    extensions.refusal.cache_clear()
    try:
        with pytest.raises(InvalidArgument, match="NNBURST_EXTENSIONS_ALLOWLIST: /nowhere/list"):
            extensions.check_permission("model")
    finally:
        extensions.refusal.cache_clear()
