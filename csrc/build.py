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
#: The header for executors in C, which is installed with the package.
HEADERS = ROOT / "src" / "nnburst" / "executor" / "include"
SOURCES = sorted(path.name for path in HERE.glob("*.c"))

#: What a builder has the compiler do besides: distributions harden and warn by flags of their own.
GIVEN = f"{os.environ.get('CFLAGS', '')} {os.environ.get('CPPFLAGS', '')}"

COMPILE = [
    "-std=c11",
    "-O2",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    # Warnings that a builder asks for are not ours to end the build by.
    *(() if GIVEN.strip() else ("-Werror",)),
    "-fstack-protector-strong",
    *(() if "_FORTIFY_SOURCE" in GIVEN else ("-D_FORTIFY_SOURCE=2",)),
    "-fvisibility=hidden",
]


@dataclass(frozen=True)
class Library:
    """A shared library that is installed with the package and has nothing of Python in it.

    Attributes:
        path: below the package; its last part is the SONAME.
        sources: below csrc/.
        macros: to define beside those of the C module, each as NAME or NAME=VALUE.
        libraries: to link, without "lib".
        link: further words for the linker, such as a version script.
    """

    path: str
    sources: tuple[str, ...]
    macros: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


#: What the linker is told about every library of ours.
_HARDENED = (
    "-Wl,-z,now",
    "-Wl,-z,relro",
    # What a sanitizer's runtime has is found in the process.
    *(() if os.environ.get("NNBURST_SANITIZE") else ("-Wl,--no-undefined",)),
)

#: What the client in C shares with the C module.
_CLIENT_PARTS = (
    "burst_client.c", "capi/environment.c", "child.c", "cpu_contention.c", "event_flag.c", "liveness.c",
    "packet.c", "pool_map.c", "queue.c", "rhythm.c", "ring_buffer.c", "waiter.c",
)  # fmt: skip


def _sources(*folders: str) -> tuple[str, ...]:
    """The C files of folders below csrc/."""
    return tuple(
        str(path.relative_to(HERE))
        for name in folders
        for path in sorted((HERE / name).glob("*.c"))
    )


#: What every plugin of an engine holds besides its own folder.
_PLUGIN_PARTS = (*_sources("plugin", "client"), *_CLIENT_PARTS)


def _version_script(folder: str) -> str:
    return f"-Wl,--version-script={os.path.relpath(HERE / folder / 'exports.map', ROOT)}"


#: Parts of libc since glibc 2.34.
_LIBC = ("dl", "pthread")


def _client_library(name: str, folder: str, parts: tuple[str, ...]) -> Library:
    """A library of a folder below csrc/ that has a client of drivers in it."""
    return Library(
        f"capi/lib/{name}",
        (*_sources(folder), *parts),
        macros=("NNBURST_NO_TRACE_POINTS",),  # a collector speaks Python's part of the protocol
        libraries=_LIBC,
        link=(_version_script(folder), *_HARDENED),
    )


#: What wheels bring along besides the C module, one row each.
LIBRARIES: tuple[Library, ...] = (
    Library(
        "capi/lib/libneuralnetworks.so",
        _sources("capi"),
        libraries=_LIBC,
        link=(
            _version_script("capi"),
            "-Wl,-z,nodelete",  # dlclose leaves it loaded: an interpreter cannot be unloaded
            *_HARDENED,
        ),
    ),
    _client_library("libnnburst.so", "client", _CLIENT_PARTS),
    _client_library("libonnxruntime_ep_nnburst.so", "onnxruntime_ep", _PLUGIN_PARTS),
    _client_library("libnnburst_delegate.so", "litert_delegate", _PLUGIN_PARTS),
)

# cffi's generated wrappers and Python's headers are not ours to warn about.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "bench.h"
#include "burst_client.h"
#include "burst_server.h"
#include "capi/exchange.h"
#include "child.h"
#include "clock.h"
#include "counters.h"
#include "event_flag.h"
#include "executor.h"
#include "gate.h"
#include "litert.h"
#include "liveness.h"
#include "onnxruntime.h"
#include "openvino.h"
#include "pool_map.h"
#include "queue.h"
#include "queue_python.h"
#include "receive_lock.h"
#include "received_fd.h"
#include "reply_reader.h"
#include "ring_buffer.h"
#include "sandbox.h"
#include "steps.h"
#include "trace.h"
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
# The stable interface as 3.11 has it, the oldest Python that wheels are for: its buffers and quick calls.
macros.append(("Py_LIMITED_API", "0x030B0000"))
# Without the marks of trace.h: what "tracing is off" is measured against.
if os.environ.get("NNBURST_TRACE_POINTS") == "0":
    macros.append(("NNBURST_NO_TRACE_POINTS", None))

ffibuilder = FFI()
ffibuilder.cdef((HERE / "cdef.h").read_text())
ffibuilder.set_source(
    "nnburst._native",
    PREAMBLE,
    sources=[os.path.relpath(HERE / name, ROOT) for name in SOURCES],
    depends=[
        os.path.relpath(path, ROOT) for path in [*sorted(HERE.glob("*.h")), *HEADERS.glob("*/*.h")]
    ],
    include_dirs=[os.path.relpath(HERE, ROOT), os.path.relpath(HEADERS, ROOT)],
    define_macros=macros,
    extra_compile_args=COMPILE + extra,
    extra_link_args=extra,
    libraries=[*_LIBC],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
