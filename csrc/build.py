"""Builds the C module `nnburst._native` (cffi, API mode, limited API).

NNBURST_SANITIZE=address,undefined or =thread builds with those sanitizers; the process that imports
the module then needs the sanitizer's runtime preloaded. NNBURST_TRAPS=1 builds with the points of trap.h,
NNBURST_TRACE_POINTS=0 without those of trace.h.
setup.py builds the module, and each row of LIBRARIES beside it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCES = sorted(path.name for path in HERE.glob("*.c"))

COMPILE = [
    "-std=c11",
    "-O2",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
    "-fstack-protector-strong",
    "-D_FORTIFY_SOURCE=2",
    "-fvisibility=hidden",
]


@dataclass(frozen=True)
class Library:
    """A shared library that is installed with the package and has nothing of Python in it.

    Attributes:
        path: below the package; its last part is the SONAME.
        sources: below csrc/.
        libraries: to link, without "lib".
        link: further words for the linker, such as a version script.
    """

    path: str
    sources: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


#: What wheels bring along besides the C module, one row each.
LIBRARIES: tuple[Library, ...] = (
    Library(
        "capi/lib/libneuralnetworks.so",
        tuple(str(path.relative_to(HERE)) for path in sorted((HERE / "capi").glob("*.c"))),
        libraries=("dl", "pthread"),  # part of libc since glibc 2.34
        link=(
            f"-Wl,--version-script={os.path.relpath(HERE / 'capi' / 'exports.map', ROOT)}",
            "-Wl,-z,nodelete",  # dlclose leaves it loaded: an interpreter cannot be unloaded
            "-Wl,-z,now",
            "-Wl,-z,relro",
            # What a sanitizer's runtime has is found in the process.
            *(() if os.environ.get("NNBURST_SANITIZE") else ("-Wl,--no-undefined",)),
        ),
    ),
)

# cffi's generated wrappers and Python's headers are not ours to warn about.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "bench.h"
#include "bench_interface.h"
#include "burst_client.h"
#include "burst_server.h"
#include "capi/exchange.h"
#include "clock.h"
#include "counters.h"
#include "event_flag.h"
#include "gate.h"
#include "line.h"
#include "litert.h"
#include "liveness.h"
#include "onnxruntime.h"
#include "pool_map.h"
#include "ring_buffer.h"
#include "sandbox.h"
#include "steps.h"
#include "trace.h"
#include "turn.h"
#include "waiter.h"
#include "long_wait.h"
"""

if sys.platform != "linux" or sys.byteorder != "little":
    raise SystemExit("nnburst needs Linux on a little-endian machine: futexes and memfds, packets")

sanitize = os.environ.get("NNBURST_SANITIZE", "")
extra = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g"] if sanitize else []
# Points at which a test can have a process killed: csrc/trap.h.
macros: list[tuple[str, str | None]] = (
    [("NNBURST_TRAPS", None)] if os.environ.get("NNBURST_TRAPS") == "1" else []
)
# Without the marks of trace.h: what "tracing is off" is measured against.
if os.environ.get("NNBURST_TRACE_POINTS") == "0":
    macros.append(("NNBURST_NO_TRACE_POINTS", None))

ffibuilder = FFI()
ffibuilder.cdef((HERE / "cdef.h").read_text())
ffibuilder.set_source(
    "nnburst._native",
    PREAMBLE,
    sources=[os.path.relpath(HERE / name, ROOT) for name in SOURCES],
    depends=[os.path.relpath(path, ROOT) for path in sorted(HERE.glob("*.h"))],
    include_dirs=[os.path.relpath(HERE, ROOT)],
    define_macros=macros,
    extra_compile_args=COMPILE + extra,
    extra_link_args=extra,
    libraries=["dl", "pthread"],  # part of libc since glibc 2.34
    py_limited_api=True,
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
