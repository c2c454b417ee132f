"""Measures a forward of PyTorch's NNAPI backend in libneuralnetworks.so beside a bound request.

    python tools/pytorch_nnapi.py [--python /usr/bin/python3] [--count N] [--executor litert] [--json FILE]

PyTorch, which the other Python has (Debian: python3-torch), is unchanged: it makes, sets, computes, asks and
frees an execution for each forward. A library in the place of libneuralnetworks.so hands each call on and
takes the time from ANeuralNetworksExecution_create to ANeuralNetworksExecution_free. Blocks of forwards
alternate with blocks of bound requests: a reusable execution with arguments of the same sizes, computed over
a burst. PyTorch computes the network before each bound request, so both follow PyTorch's code. The tool
prints lower quartiles and medians of both in microseconds, and their differences.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nnburst.capi import installed
from nnburst.capi.functions import FUNCTIONS, Function

#: What nnburst needs besides numpy, which is the other Python's.
_NEEDED: Final = (
    "cffi",
    "_cffi_backend",
    "msgspec",
    "posix_ipc",
    "ai_edge_litert",
    "onnxruntime",
    "flatbuffers",
)
_CREATE: Final = "ANeuralNetworksExecution_create"
_FREE: Final = "ANeuralNetworksExecution_free"
#: Behind a call that it was handed on, what is noted of it.
_NOTES: Final = {
    "ANeuralNetworksExecution_setInput": "note(&inputs, index, length);",
    "ANeuralNetworksExecution_setOutput": "note(&outputs, index, length);",
}

_HEAD: Final = r"""
#include <android/NeuralNetworks.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define MOST 8
struct sizes { uint32_t count; size_t bytes[MOST]; };
static struct sizes inputs, outputs;
static ANeuralNetworksCompilation *compiled;
static uint64_t began, *samples;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void note(struct sizes *sizes, int32_t index, size_t length) {
    if (index >= 0 && index < MOST) {
        sizes->bytes[index] = length;
        sizes->count = sizes->count > (uint32_t)index ? sizes->count : (uint32_t)index + 1;
    }
}
static void *real(const char *name) {
    static void *library;
    if (library == NULL) {
        library = dlopen(getenv("NNAPI_BEHIND"), RTLD_NOW | RTLD_LOCAL);
    }
    return dlsym(library, name);
}
/* From now on write the times of forwards here; NULL: nowhere. */
void record(uint64_t *into) { samples = into; }
"""

_TAIL: Final = r"""
/* Nanoseconds of a computation of one reusable execution with the last forward's sizes; 0 if it failed. */
uint64_t bound_request(void) {
    static ANeuralNetworksExecution *execution;
    static ANeuralNetworksBurst *burst;
    int code = 0;
    if (burst == NULL) {
        code = ANeuralNetworksBurst_create(compiled, &burst);
        code = code ? code : ANeuralNetworksExecution_create(compiled, &execution);
        code = code ? code : ANeuralNetworksExecution_setReusable(execution, true);
        for (uint32_t i = 0; code == 0 && i < inputs.count; i++) {
            size_t bytes = inputs.bytes[i];
            code = ANeuralNetworksExecution_setInput(execution, (int32_t)i, NULL, calloc(1, bytes), bytes);
        }
        for (uint32_t i = 0; code == 0 && i < outputs.count; i++) {
            size_t bytes = outputs.bytes[i];
            code = ANeuralNetworksExecution_setOutput(execution, (int32_t)i, NULL, calloc(1, bytes), bytes);
        }
    }
    uint64_t from = now();
    code = code ? code : ANeuralNetworksExecution_burstCompute(execution, burst);
    return code ? 0 : now() - from;
}
"""

_INSIDE: Final = r"""
import ctypes, json, sys, time
import numpy as np, torch
from torch.backends._nnapi.prepare import convert_model_to_nnapi

count = int(sys.argv[1])
network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
x = torch.rand(1, 16)
library = ctypes.CDLL("libneuralnetworks.so")
library.bound_request.restype = ctypes.c_uint64
BLOCK = 50
count -= count % BLOCK
forward, bound = np.zeros(count, np.uint64), np.zeros(count, np.uint64)

with torch.no_grad():
    backend = convert_model_to_nnapi(torch.jit.trace(network, x), x)
    assert torch.allclose(backend(x), network(x), atol=1e-5)
    for _ in range(20):  # until the thread has its burst
        for _ in range(50):
            backend(x)
        time.sleep(0.01)
    for first in range(0, count, BLOCK):
        library.record(ctypes.c_void_p(forward.ctypes.data + 8 * first))
        for _ in range(BLOCK):
            backend(x)
        library.record(None)
        for at in range(first, first + BLOCK):
            network(x)
            bound[at] = library.bound_request()
    assert forward.min() > 0 and bound.min() > 0
    assert torch.allclose(backend(x), network(x), atol=1e-5)
print(json.dumps({"forward": forward[BLOCK:].tolist(), "bound": bound[BLOCK:].tolist()}))
"""


def interposer() -> str:
    """A library in C with the interface's functions, each of which calls the one behind it."""
    return "\n".join(
        [_HEAD, *(line for function in FUNCTIONS for line in _forward(function)), _TAIL]
    )


def _forward(function: Function) -> Iterator[str]:
    names = ", ".join(argument.name for argument in function.arguments)
    types = ", ".join(argument.ctype for argument in function.arguments) or "void"
    yield f"{function.prototype} {{"
    yield f"    static {function.result} (*behind)({types});"
    yield f'    if (behind == NULL) *(void **)&behind = real("{function.name}");'
    if function.name == _CREATE:
        yield "    compiled = compilation;"
        yield "    began = now();"
    call = f"behind({names})"
    if function.result == "void":
        yield f"    {call};"
    else:
        yield f"    {function.result} answer = {call};"
    if function.name == _FREE:
        yield "    if (samples != NULL) *samples++ = now() - began;"
    yield f"    {_NOTES.get(function.name, '')}"
    if function.result != "void":
        yield "    return answer;"
    yield "}"


def measure(python: str, count: int, executor: str) -> dict[str, list[int]]:
    """Nanoseconds of forwards and of bound requests."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        source, library = folder / "interposer.c", folder / "libneuralnetworks.so"
        source.write_text(interposer(), encoding="utf-8")
        flags = ["-O2", "-shared", "-fPIC", "-D_GNU_SOURCE", installed.cflags()]
        subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)  # noqa: S603, S607
        packages = folder / "packages"
        packages.mkdir()
        for name in ("nnburst", *_NEEDED):
            found = importlib.util.find_spec(name)
            if found is not None and found.origin is not None:
                origin = Path(found.origin)
                origin = origin.parent if origin.name == "__init__.py" else origin
                (packages / origin.name).symlink_to(origin)
        environment = {
            **os.environ,
            "PYTHONPATH": str(packages),
            "LD_LIBRARY_PATH": str(folder),
            "NNAPI_BEHIND": str(installed.LIBRARY),
            "NNBURST_DEVICES": executor,
        }
        done = subprocess.run(  # noqa: S603
            [python, "-c", _INSIDE, str(count)],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    samples: dict[str, list[int]] = json.loads(done.stdout)
    return samples


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="/usr/bin/python3", help="which has PyTorch")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--executor", default="litert")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    samples = measure(args.python, args.count, args.executor)
    figures: dict[str, dict[str, float]] = {}
    for share, name in ((0.25, "lower quartile"), (0.5, "median")):
        row = {way: sorted(times)[int(share * len(times))] / 1e3 for way, times in samples.items()}
        row["difference"] = row["forward"] - row["bound"]
        figures[name] = row
        print(f"{name}: " + ", ".join(f"{way} {value:.2f} µs" for way, value in row.items()))
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
