"""Makes a Python whose C library is musl, by this machine's compiler, from Debian's sources."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

NEEDED: Final = ("apt-get", "gcc", "make", "tar", "xz")
VERSION: Final = "3.13"
MACHINE: Final = os.uname().machine
#: What is compiled, in this order, and the release of Debian it is of: numpy's wheels need what musl's loader
#: has since 1.2.4 (DT_RELR), and later sources of libffi come without their `configure`.
SOURCES: Final = {
    "musl": "trixie",
    "zlib": "bookworm",
    "libffi": "bookworm",
    f"python{VERSION}": "trixie",
}
_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
#: Python asks its compiler for this name, which gcc answers with glibc's. The kernel's headers, without which
#: Python has no pidfd_open, are this machine's, apart from those of its C library.
_COMPILER: Final = f"""#!/bin/sh
case $1 in -print-multiarch | --print-multiarch) exec echo {MACHINE}-linux-musl ;; esac
here=$(dirname "$0")
exec "$here/musl-gcc" -idirafter "$here/../kernel" "$@"
"""
_KERNEL: Final = {"linux": "linux", "asm-generic": "asm-generic", "asm": f"{MACHINE}-linux-gnu/asm"}
#: How each is configured, what of it is made and what is installed; $P is the folder of all.
_STEPS: Final = {
    "musl": ("./configure --prefix=$P --syslibdir=$P/lib --disable-static", "all", "install"),
    "zlib": ("CC=$P/bin/cc CFLAGS=-fPIC ./configure --static --prefix=$P", "libz.a", "install"),
    "libffi": (
        "CC=$P/bin/cc CFLAGS=-fPIC ./configure $HERE --prefix=$P --disable-shared --disable-docs"
        " --disable-multi-os-directory",
        "all",
        "install",
    ),
    f"python{VERSION}": (
        # Given flags take the place of pkg-config, which knows only this machine's libraries.
        "CC=$P/bin/cc PKG_CONFIG=false ZLIB_LIBS=-lz ZLIB_CFLAGS=-I$P/include LIBFFI_LIBS=-lffi"
        " LIBFFI_CFLAGS=-I$P/include ./configure $HERE --prefix=$P --with-ensurepip=no"
        " --disable-test-modules",
        "all",
        "install",
    ),
}


def missing() -> list[str]:
    """The programs and packages that this machine lacks."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return [*lacking, *([] if Path(_KEYS).exists() else ["debian-archive-keyring"])]


def make(folder: Path) -> Path:
    """Download, compile and install into `folder`, unless it is there; some ten minutes of one core.

    Returns:
        The interpreter: with ctypes and zlib, without ssl and sqlite3.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is in the file `log` in the folder.
    """
    python = folder / "bin" / "python3"
    if (folder / "made").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    sources = folder / "sources"
    sources.mkdir(parents=True)
    _download(sources)
    for name in SOURCES:
        print(f"{name} is compiled", flush=True)
        (archive,) = sources.glob(f"{name}_*.orig.tar.*[!c]")  # not the signature, .asc
        _run(folder, "tar", "xf", archive, "--one-top-level", "--strip-components=1", cwd=sources)
        code = sources / archive.name.partition(".tar")[0]
        configure, target, install = _STEPS[name]
        here = f"--build={MACHINE}-unknown-linux-musl --host={MACHINE}-unknown-linux-musl"
        script = f"P={folder} HERE='{here}'; {configure} && make {target} && make {install}"
        _run(folder, "sh", "-c", script, cwd=code)
        if name == "musl":
            compiler = folder / "bin" / "cc"
            compiler.write_text(_COMPILER)
            compiler.chmod(0o755)
            (folder / "kernel").mkdir()
            for kind, place in _KERNEL.items():
                (folder / "kernel" / kind).symlink_to(Path("/usr/include") / place)
    (folder / "made").touch()
    return python


def _download(sources: Path) -> None:
    """Source packages, by lists of our own: this machine's may have programs only, or be of another suite."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    listed = subprocess.run(targets, check=True, capture_output=True, text=True).stdout
    state = sources / "apt"
    (state / "lists" / "partial").mkdir(parents=True)
    source = f"deb-src [signed-by={_KEYS}] {listed.split()[0]}"
    lines = [f"{source} {suite} main\n" for suite in sorted({*SOURCES.values()})]
    (state / "list").write_text("".join(lines))
    options = [
        *("-o", f"Dir::Etc::SourceList={state / 'list'}", "-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state}"),
    ]
    names = [f"{name}/{suite}" for name, suite in SOURCES.items()]
    for words in (["update"], ["source", "--download-only", "--tar-only", *names]):
        _run(sources.parent, "apt-get", *options, *words, cwd=sources)


def _run(folder: Path, *words: object, cwd: Path) -> None:
    with (folder / "log").open("a") as log:
        command = list(map(str, words))
        subprocess.run(command, cwd=cwd, check=True, stdout=log, stderr=subprocess.STDOUT)
