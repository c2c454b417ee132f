"""Runs the wheel for Arm on an emulator: selftest, suites, and networks beside this machine's results.

    python -m tools.arm64 FOLDER [--processors cortex-a53,cortex-a76] [--suites hal,fmq] [--no-networks]

The folder (about 1 GiB) keeps root and wheels, so that a second run is quick. The emulator shows neither the
order of memory nor speed; tests/csrc/test_litmus.py is for the first. `QEMU_CPU` is always set: with qemu's
default processor LiteRT's kernels give garbage. Wants root and, of Debian's packages, mmdebstrap, arch-test
and qemu-user-static.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from tools.arm64.emulator import Root, missing, register
from tools.arm64.networks import Array, compare, outputs
from tools.arm64.selection import CANNOT, SUITES

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared"
#: In order of features: none beyond Armv8-A, then dot products.
PROCESSORS: Final = ("cortex-a53", "cortex-a76")
DEPENDENCIES: Final = (
    "numpy<2.4.7",
    "cffi",
    "msgspec",
    "posix_ipc",
    "ai-edge-litert<2.4",
    "pytest",
    "hypothesis",
    "pytest-xdist",
    "rich",
)
#: A test that stands still ends its suite and is named.
_NAMED: Final = (
    "--max-worker-restart=0",
    *("-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true"),
)
PLATFORMS: Final = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_26",
    "manylinux_2_17",
    "manylinux2014",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if anything fails that the emulator can do, 2 if something to run it is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.arm64", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processors", default=",".join(PROCESSORS))
    parser.add_argument("--suites", default=",".join(SUITES), help="folders and files below tests/")
    parser.add_argument("--no-networks", action="store_true")
    parser.add_argument("--again", action="store_true", help="with the wheel that is installed")
    args = parser.parse_args(argv)
    if lacking := missing():
        print(f"make arm64 needs {', '.join(lacking)}", file=sys.stderr)
        return 2
    folder = args.folder.resolve()
    register()
    root = Root(folder / "root")
    first, *others = args.processors.split(",")
    if not args.again:
        root.install(download(folder / "wheels"), [*DEPENDENCIES, "nnburst"], first)
    root.copy(
        ROOT,
        "/project/nnburst",
        "tests",
        "tools",
        "docs",
        "csrc",
        "pyproject.toml",
        "README.md",
        "Makefile",
    )
    root.copy(SHARED, "/project/shared", "models", "vectors", "golden")
    failed = (
        [f"selftest on {first}"]
        if root.run("nnburst", "selftest", processor=first).returncode
        else []
    )
    for suite in filter(None, args.suites.split(",")):
        failed += [] if passes(root, suite, first) else [f"tests/{suite} on {first}"]
    if not args.no_networks:
        here = outputs(SHARED / "models")
        for processor in (first, *others):
            failed += same_results(root, here, processor)
    print("failed: " + ", ".join(failed) if failed else "all passed")
    return int(bool(failed))


def download(folder: Path) -> Path:
    """Wheels for Arm of what is needed, and the one of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, "-m"]
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_aarch64")]
    abis = [word for abi in ("cp311", "abi3", "none") for word in ("--abi", abi)]
    wanted = ["--only-binary", ":all:", "--python-version", "311", *abis, *platforms]
    if not any(folder.glob("numpy-*.whl")):
        subprocess.run(
            [*python, "pip", "download", "-q", "-d", folder, *wanted, *DEPENDENCIES], check=True
        )
    only = ["--only", "manylinux_2_17_aarch64"]
    subprocess.run([*python, "tools.wheels", "--outdir", folder, *only], cwd=ROOT, check=True)
    return folder


def passes(root: Root, suite: str, processor: str) -> bool:
    """Run a suite, less what an emulator cannot do."""
    cannot = [test for tests in CANNOT.values() for test in tests]
    left_out = [word for test in cannot for word in ("--deselect", f"tests/{test}")]
    print(f"tests/{suite} on {processor}", flush=True)
    command = [
        "/venv/bin/python",
        "-m",
        "pytest",
        "-q",
        *_NAMED,
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        f"tests/{suite}",
    ]
    where = "/project/nnburst"
    return (
        root.run(
            *command, *left_out, directory=where, processor=processor, NNBURST_EMULATED="1"
        ).returncode
        == 0
    )


def same_results(root: Root, here: Mapping[str, Array], processor: str) -> list[str]:
    """Networks by each executor there beside those here: what did not run, or differs by more than it may."""
    print(f"networks on {processor}", flush=True)
    script = "/project/nnburst/tools/arm64/networks.py"
    done = root.run(
        "/venv/bin/python",
        script,
        "/project/shared/models",
        "/project/found.npz",
        processor=processor,
    )
    if done.returncode:  # what an earlier run has found is not compared
        return [f"networks on {processor}"]
    with np.load(root.folder / "project" / "found.npz") as found:
        lines = compare(here, dict(found))
    print("\n".join(lines), flush=True)
    return [f"{line} on {processor}" for line in lines if line.startswith("WRONG")]


if __name__ == "__main__":
    sys.exit(main())
