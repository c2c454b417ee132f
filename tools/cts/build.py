"""Compiles CTS on Linux: unmodified sources, a few definitions that Android's build gives, two shims.

Needs clang 16, and of Debian libgtest-dev, libgmock-dev, android-libbase-dev and android-liblog-dev.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from nnburst.hal.errors import GeneralFailure, InvalidArgument

COMPILERS: Final = ("clang++-16", "clang++")
ANDROID_LIBRARIES: Final = Path("/usr/lib/x86_64-linux-gnu/android")

#: Sources below runtime/test. TestValidateModel needs a file that copies of the repository lack.
_TESTS: Final = (
    "CtsMain",
    "GeneratedTestUtils",
    "RequireDebug",
    "TestControlFlow",
    "TestFree",
    "TestGenerated",
    "TestMemory",
    "TestNeuralNetworksWrapper",
    "TestTrivialModel",
    "TestUnknownDimensions",
    "TestUpdatability",
    "TestValidateOperations",
    "TestValidation",
    "TestWrapper",
)
_INCLUDES: Final = (
    "common/include",
    "common/types/include",
    "runtime",
    "runtime/include",
    "runtime/test",
    "tools/test_generator/test_harness/include",
    "runtime/test/fuzzing",
)
#: API levels as Android's headers name them; the newest for what is compiled.
_LEVELS: Final = {"Q": 29, "R": 30, "S": 31, "T": 33, "FUTURE": 10000}
#: What Android's C++ library includes by itself.
_STANDARD: Final = (
    "algorithm", "array", "climits", "cstddef", "cstdint", "cstring", "functional", "iostream", "limits",
    "memory", "optional", "string", "tuple", "utility", "vector",
)  # fmt: skip
_SHIMS: Final = {
    "android/sharedmem.h": "#pragma once\n#include <stddef.h>\n",
    # Android's C++ library can swap two bits of a vector<bool>; libstdc++ cannot if they are temporaries.
    "nnburst_bits.h": (
        "#pragma once\n#include <vector>\nnamespace std {\n"
        "inline void swap(_Bit_reference&& left, _Bit_reference&& right) {\n"
        "    const bool kept = left;\n    left = static_cast<bool>(right);\n    right = kept;\n}\n}\n"
    ),
}


def build(sources: Path, out: Path, library: Path, *, generated: bool, jobs: int) -> Path:
    """Compile what is not compiled yet, and link.

    Args:
        sources: the checkout.
        out: where objects and the program go.
        library: folder of libneuralnetworks.so.
        generated: whether the generated examples are part of it, 49,000 cases more.
        jobs: compilers at once.

    Returns:
        The program.

    Raises:
        InvalidArgument: this is no such checkout, or there is no compiler.
        GeneralFailure: something does not compile or link; the compiler's message.
    """
    if not (sources / "runtime/test/CtsMain.cpp").is_file():
        raise InvalidArgument(f"{sources}: no runtime/test/CtsMain.cpp in it, expected a checkout")
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise InvalidArgument(f"none of {', '.join(COMPILERS)} is installed")
    for name, text in _SHIMS.items():
        shim = out / "include" / name
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(text, encoding="utf-8")
    command = [compiler, *_flags(sources.resolve(), out / "include")]
    units = list(_units(sources.resolve(), generated=generated))
    objects = [out / "objects" / f"{unit.relative_to(sources.resolve())}.o" for unit in units]
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(lambda pair: _compile(command, *pair), zip(units, objects, strict=True)):
            pass  # an error is raised here
    program = out / ("cts-all" if generated else "cts-core")
    _run([compiler, "-o", str(program), *map(str, objects), *_link(library)], "linking")
    return program


def _units(sources: Path, *, generated: bool) -> Iterator[Path]:
    tests = sources / "runtime/test"
    yield from (tests / f"{name}.cpp" for name in _TESTS)
    yield sources / "tools/test_generator/test_harness/TestHarness.cpp"
    yield from sorted((tests / "fuzzing").glob("*.cpp"))
    yield from sorted((tests / "fuzzing/operation_signatures").glob("*.cpp"))
    if generated:
        examples = sorted((tests / "generated").rglob("*.example.cpp"))
        yield from (path for path in examples if "experimental" not in path.as_posix())


def _flags(sources: Path, shims: Path) -> list[str]:
    levels = [f"-D__ANDROID_API_{name}__={level}" for name, level in _LEVELS.items()]
    folders = [shims, Path("/usr/include/android"), *(sources / name for name in _INCLUDES)]
    return [
        "-std=gnu++17",
        "-O0",
        "-w",
        "-UNDEBUG",
        "-DNNTEST_CTS",
        "-DNNTEST_ONLY_PUBLIC_API",
        "-D__ANDROID_API__=10000",
        "-D__INTRODUCED_IN(x)=",
        *levels,
        *(f"-I{folder}" for folder in folders),
        *(word for name in (*_STANDARD, "nnburst_bits.h") for word in ("-include", name)),
    ]


def _link(library: Path) -> list[str]:
    return [
        f"-L{library}",
        f"-Wl,-rpath,{library}",
        "-lneuralnetworks",
        f"-L{ANDROID_LIBRARIES}",
        f"-Wl,-rpath,{ANDROID_LIBRARIES}",
        *(f"-l{name}" for name in ("base", "log", "gmock", "gtest", "pthread")),
    ]


def _compile(command: list[str], unit: Path, compiled: Path) -> None:
    if compiled.exists() and compiled.stat().st_mtime >= unit.stat().st_mtime:
        return
    compiled.parent.mkdir(parents=True, exist_ok=True)
    partial = compiled.with_suffix(".partial")
    _run([*command, "-c", str(unit), "-o", str(partial)], unit.name)
    partial.rename(compiled)


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise GeneralFailure(f"{what}: {lines[0] if lines else done.stderr[-500:]}")
