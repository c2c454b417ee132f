"""A root of Debian for Arm whose programs this machine's kernel hands to qemu."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

QEMU: Final = Path("/usr/bin/qemu-aarch64-static")
NEEDED: Final = ("mmdebstrap", "arch-test", "setpriv", "unshare", QEMU.name)
#: Debian 12 has Python 3.11, the oldest that nnburst supports.
SUITE: Final = "bookworm"
PACKAGES: Final = "python3,python3-venv"
_HANDLERS: Final = Path("/proc/sys/fs/binfmt_misc")
_NAME: Final = "qemu-aarch64"
#: A 64-bit little-endian ELF program or library for Arm: its first bytes, and the bits of them that count.
_MAGIC: Final = rb"\x7fELF\x02\x01\x01" + rb"\x00" * 9 + rb"\x02\x00\xb7\x00"
_MASK: Final = rb"\xff" * 7 + rb"\x00" + rb"\xff" * 8 + rb"\xfe" + rb"\xff" * 3
#: Engines choose their kernels by what /sys says of the processors: without it, LiteRT's quantised results
#: are others than here. Of caches it must say nothing: they are those of another kind of processor, and what
#: LiteRT 2.3 makes of some ends in a segmentation fault.
_ENTER: Final = """
root=$0 directory=$1; shift
mount --rbind /sys "$root/sys" && mount -t proc proc "$root/proc" || exit
for caches in "$root"/sys/devices/system/cpu/cpu*/cache; do
    test ! -d "$caches" || mount -t tmpfs none "$caches" || exit
done
mkdir -p "$root/dev/shm" && mount -t tmpfs shm "$root/dev/shm" || exit
exec chroot "$root" env --chdir="$directory" "$@"
"""
#: F: the kernel opens qemu now, so that roots need none of their own.
_FLAGS: Final = b"OCF"


def register() -> None:
    """Have the kernel start programs for Arm by qemu, unless it does already."""
    if not (_HANDLERS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", _HANDLERS], check=True)
    if not (_HANDLERS / _NAME).exists():
        parts = (b"", _NAME.encode(), b"M", b"", _MAGIC, _MASK, bytes(QEMU), _FLAGS)
        (_HANDLERS / "register").write_bytes(b":".join(parts))


class Root:
    """A root at a folder; what it has lasts until the folder is removed."""

    def __init__(self, folder: Path) -> None:
        """Make it, if it is not there."""
        self.folder = folder
        made = folder / "made"
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            include = f"--include={PACKAGES}"
            command = ("mmdebstrap", "--arch=arm64", "--variant=apt", include, SUITE, str(folder))
            print(f"{' '.join(command)}: some minutes", flush=True)
            subprocess.run(command, check=True)
            made.touch()

    def run(
        self, *words: str, directory: str = "/", processor: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it, with mounts and processes of its own; its output goes through.

        All of them end with this thread, however that ends.
        """
        path = "/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        settings = {"PATH": path, "HOME": "/root", "QEMU_CPU": processor}
        command = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork"]
        command += ["--kill-child", "sh", "-c", _ENTER, str(self.folder), directory, *words]
        sys.stdout.flush()
        return subprocess.run(command, env=settings | environment, text=True, check=False)

    def install(self, wheels: Path, names: Sequence[str], processor: str) -> None:
        """Make an environment at /venv, and put wheels of a folder of this machine into it.

        Raises:
            RuntimeError: pip failed.
        """
        shutil.copytree(wheels, self.folder / "wheels", dirs_exist_ok=True)
        if not (self.folder / "venv" / "bin" / "pip").exists():
            self.run("python3", "-m", "venv", "/venv", processor=processor)
        fresh = [name for name in names if name.startswith("nnburst")]
        options = ("install", "-q", "--no-index", "--find-links", "/wheels")
        for words in (names, ["--force-reinstall", "--no-deps", *fresh]):
            done = self.run("/venv/bin/pip", *options, *words, processor=processor)
            if done.returncode:
                raise RuntimeError(f"pip install {' '.join(words)}: exit code {done.returncode}")

    def copy(self, source: Path, target: str, *names: str) -> None:
        """Copy files and folders of this machine into a folder of the root, which is emptied before."""
        folder = self.folder / target.lstrip("/")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        skipped = shutil.ignore_patterns("__pycache__", "*.so", "_build", ".*")
        for name in names:
            found = source / name
            if found.is_dir():
                shutil.copytree(found, folder / name, ignore=skipped)
            elif found.exists():
                shutil.copy2(found, folder / name)


def missing() -> list[str]:
    """The programs and rights that this machine lacks."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return [*lacking, *(["root's rights"] if os.getuid() else [])]
