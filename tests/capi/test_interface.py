"""The table of the C interface, and that everything which is written from it agrees with it."""

from __future__ import annotations

import inspect
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from c_interface import header
from c_interface.__main__ import files
from capi.conftest import Compile, Run
from nnburst.capi import handlers, installed
from nnburst.capi.constants import ENUMS, OEM_ENUMS, STRUCTS
from nnburst.capi.constants import PREFIX as CONSTANT_PREFIX
from nnburst.capi.entry import Row
from nnburst.capi.functions import FUNCTIONS, PREFIX, Function, HandleKind, Pass
from nnburst.hal.environment import ANDROID_HEADERS
from nnburst.runtime import Compilation, Event, Execution, MemoryDesc, Model
from nnburst.runtime.devices.driver_device import DriverDevice

ROOT = Path(__file__).resolve().parents[2]
NAMES = {function.name for function in FUNCTIONS}


def checks() -> str:
    """C that does not compile unless sizes, offsets, values and types are the table's."""
    lines = ["#define SAME(what, value) typedef char check_##what[(value) ? 1 : -1]"]
    for _, constants in (*ENUMS, *OEM_ENUMS):
        lines += [
            f"SAME({name}, {CONSTANT_PREFIX}{name} == {value});"
            for name, value in constants.items()
        ]
    for known in STRUCTS:
        lines.append(f"SAME({known.name}, sizeof({known.name}) == {known.layout.size});")
        letters = known.layout.format.removesuffix("0P")
        for index, (_, field, _) in enumerate(known.fields):
            offset = struct.calcsize(letters[: index + 1]) - struct.calcsize(letters[index])
            lines.append(
                f"SAME({known.name}_{field}, offsetof({known.name}, {field}) == {offset});"
            )
    for function in FUNCTIONS:
        arguments = ", ".join(argument.ctype for argument in function.arguments) or "void"
        pointer = f"{function.result} (*check_{function.name})({arguments})"
        lines.append(f"{pointer} = {function.name};")
    return "\n".join(lines)


def test_there_are_69_functions_and_6_of_extensions() -> None:
    assert len(NAMES) == len(FUNCTIONS) == 75
    assert sum(1 for function in FUNCTIONS if not function.level) == 6
    assert {function.level for function in FUNCTIONS} == {0, 1, 2, 3, 4, 5}


def test_each_function_makes_at_most_one_object() -> None:
    for function in FUNCTIONS:
        made = [a for a in function.arguments if a.passing is Pass.NEW_HANDLE]
        assert len(made) <= 1
        assert bool(made) == any(word in function.name for word in ("create", "startCompute"))


@pytest.mark.parametrize("name", files())
def test_generated_file_follows_the_table(name: str) -> None:
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"no {name}: this is no checkout")
    assert path.read_text() == files()[name]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "clang-16", "g++", "clang++-16"])
@pytest.mark.parametrize("folder", ["android/", ""])
def test_headers_are_clean_c99_and_cpp_and_follow_the_table(
    compile_program: Compile, compiler: str, folder: str
) -> None:
    names = ("Extensions", "OEM")  # the former includes the others
    included = "".join(f"#include <{folder}NeuralNetworks{name}.h>\n" for name in names)
    compile_program(f"{included}{checks()}\nint main(void) {{ return 0; }}\n", compiler=compiler)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("name", header.headers())
def test_each_header_is_clean_alone_and_twice(
    compile_program: Compile, compiler: str, name: str
) -> None:
    included = f"#include <android/{name}>\n#include <{name}>\n"
    compile_program(f"{included}int main(void) {{ return 0; }}\n", compiler=compiler)


def test_functions_are_declared_in_the_headers_of_the_original() -> None:
    texts = header.headers()
    for function in FUNCTIONS:
        name = "NeuralNetworks.h" if function.level else "NeuralNetworksExtensions.h"
        assert [each for each, text in texts.items() if f"{function.name}(" in text] == [name]


def test_androids_header_has_the_same_sizes_offsets_values_and_types(tmp_path: Path) -> None:
    if not ANDROID_HEADERS.is_set or shutil.which("gcc") is None:
        pytest.skip("NNBURST_ANDROID_HEADERS is not set to the folder of Android's headers")
    folder = ANDROID_HEADERS.read()
    source = tmp_path / "same.c"
    headers = ("NeuralNetworks.h", "NeuralNetworksExtensions.h", "NeuralNetworksOEM.h")
    included = "".join(f'#include "{folder}/{name}"\n' for name in headers)
    ours = (
        "typedef struct AHardwareBuffer AHardwareBuffer;\n"
        "int ANeuralNetworksMemory_createFromAHardwareBuffer(const AHardwareBuffer*, "
        "ANeuralNetworksMemory**);\n"  # their header has it on Android alone
    )
    source.write_text(f"#define __INTRODUCED_IN(x)\n{included}{ours}{checks()}\n")
    command = ["gcc", "-std=c11", "-Werror", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_library_exports_exactly_the_functions() -> None:
    if shutil.which("nm") is None or not installed.LIBRARY.is_file():
        pytest.skip("no nm, or no library")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(installed.LIBRARY)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == NAMES


def test_library_links_no_python_and_has_its_soname() -> None:
    if shutil.which("readelf") is None or not installed.LIBRARY.is_file():
        pytest.skip("no readelf, or no library")
    dynamic = subprocess.run(
        ["readelf", "-d", str(installed.LIBRARY)], capture_output=True, text=True, check=True
    ).stdout
    assert "soname: [libneuralnetworks.so]" in dynamic
    assert "libpython" not in dynamic
    assert "NODELETE" in dynamic


def test_pkg_config_gives_what_builds_a_program(
    compile_program: Compile, run_compiled: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    monkeypatch.setenv("PKG_CONFIG_PATH", str(installed.PKG_CONFIG_FOLDER))
    command = ["pkg-config", "--cflags", "--libs", "neuralnetworks"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    text = (
        "#include <android/NeuralNetworks.h>\n"
        f"int main(void) {{ return {PREFIX}_getRuntimeFeatureLevel() == 1000008 ? 0 : 1; }}\n"
    )
    assert run_compiled(compile_program(text, *flags)).returncode == 0


#: The class of each kind of handle that rows of the table call methods of.
CLASSES = {
    HandleKind.Device: DriverDevice,
    HandleKind.Model: Model,
    HandleKind.Compilation: Compilation,
    HandleKind.Execution: Execution,
    HandleKind.Event: Event,
    HandleKind.MemoryDesc: MemoryDesc,
}
ROWS = {
    function.key: Row(function)
    for function in FUNCTIONS
    if function.needs_device
    and not function.is_free
    and not hasattr(handlers, function.key)
    and not function.key.endswith("hardware_buffer")
}


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f.key in ROWS], ids=lambda f: f.key)
def test_each_row_is_a_call_that_the_framework_takes(function: Function) -> None:
    row = ROWS[function.key]
    owner = row.of or CLASSES[function.arguments[0].kind]  # type: ignore[index]
    if row.arguments is None:
        assert hasattr(owner, row.name) or f"self.{row.name}" in inspect.getsource(owner)
        return
    words = [text.rpartition("=") for text in row.arguments]
    given = [word for key, _, word in words if not key for _ in word.split("*")]
    named = {key: word for key, _, word in words if key}
    called = getattr(owner, row.name) if row.name else owner
    is_bound = row.of is not None or isinstance(vars(owner)[row.name], staticmethod)
    inspect.signature(called).bind(*([] if is_bound else [None]), *given, **named)
