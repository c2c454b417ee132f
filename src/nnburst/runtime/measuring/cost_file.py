"""CostFile: what one device took for the parts that were measured, kept in the user's cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import Final

import msgspec

#: Entries of one file; the oldest go first.
_KEPT_AT_MOST: Final = 20_000


class _Contents(msgspec.Struct):
    """A file: whose figures they are, in plain words for people, and seconds by signature."""

    device: str
    version: str
    processor: str
    seconds: dict[str, float]


_decode: Final = msgspec.json.Decoder(_Contents).decode


def cost_directory() -> Path | None:
    """`$XDG_CACHE_HOME/nnburst/costs`, or `~/.cache/nnburst/costs`; None without a home directory."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if given.startswith("/"):  # XDG: others are ignored
        return Path(given, "nnburst", "costs")
    with contextlib.suppress(RuntimeError):
        return Path.home() / ".cache" / "nnburst" / "costs"
    return None


def processor_model() -> str:
    """The processor, without which measurements mean nothing."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return f"{value.strip()} ×{os.cpu_count()}"
    except OSError:
        pass
    return f"{platform.machine()} ×{os.cpu_count()}"


class CostFile:
    """Seconds by signature, of one version of one device on one kind of processor. Not thread-safe.

    Reading and writing are never errors: what cannot be read is measured anew, what cannot be written
    is lost.
    """

    def __init__(self, directory: Path | None, device: str, version: str) -> None:
        """Read what is there.

        Args:
            directory: of all such files, made if it is missing; None to keep nothing.
            device: name of the device.
            version: its version string.
        """
        processor = processor_model()
        key = hashlib.sha256(f"{device}\0{version}\0{processor}".encode()).hexdigest()[:32]
        self._path: Final = None if directory is None else directory / f"{key}.json"
        self._contents = _Contents(device, version, processor, {})
        if self._path is None:
            return
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found = _decode(self._path.read_bytes())
            if (found.device, found.version, found.processor) == (device, version, processor):
                self._contents = found

    def get(self, signature: str) -> float | None:
        """What a part took; None if it was not measured."""
        seconds = self._contents.seconds.get(signature)
        return seconds if seconds is not None and seconds > 0 else None

    def put(self, signature: str, seconds: float) -> None:
        """Note what a part took."""
        kept = self._contents.seconds
        kept[signature] = seconds
        while len(kept) > _KEPT_AT_MOST:
            del kept[next(iter(kept))]

    def save(self) -> None:
        """Write the file as a whole, so that a reader sees the old or the new one."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
                file.write(msgspec.json.encode(self._contents))
            Path(file.name).replace(self._path)
