"""The compiled modules of a package in one file, from which a driver imports them.

A driver imports some two hundred small modules. To find each in its folder and to open and check its own
compiled file takes longer than to execute it; one file is read at once. Like Python's compiled files it lies
in a folder `__pycache__`, is written by the first process that may, and counts for a module only as long as
the source is what it was. What it lacks is imported as ever, and is in the next one (ADR 38).
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import CodeType, ModuleType
from typing import Final

#: What reading a file that is not there, or is no bundle, raises.
_UNREADABLE: Final = (OSError, EOFError, ValueError, TypeError)
_HEAD: Final = len(MAGIC_NUMBER) + 4

#: When a source was written and put where it is, in nanoseconds, and its bytes.
_About = tuple[int, int, int]
#: Of a module: its source and what that was; where Python keeps its own compiled form; whether it is a
#: package; where its code begins and ends behind all entries.
_Entry = tuple[str, _About, str | None, bool, int, int]


class CodeBundle:
    """Finds modules of a package in one file, as an entry of `sys.meta_path`. Not thread-safe."""

    def __init__(self, package: str, path: str) -> None:
        """Read the bundle of `package` at `path`; without one for this Python, nothing is found."""
        self._package = package
        self._path = path
        self._entries: dict[str, _Entry] = {}
        self._codes = memoryview(b"")
        self._before = frozenset(sys.modules)
        with contextlib.suppress(*_UNREADABLE):
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib is imported from here
                content = memoryview(file.read())
            size = int.from_bytes(content[len(MAGIC_NUMBER) : _HEAD], "little")
            *about, entries = marshal.loads(content[_HEAD : _HEAD + size])  # noqa: S302 - as below
            codes = content[_HEAD + size :]
            if content[: len(MAGIC_NUMBER)] == MAGIC_NUMBER and about == [path, len(codes)]:
                self._entries, self._codes = entries, codes

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - a module of the package has one place
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it; None for what is not here, or has changed."""
        entry = self._entries.get(name)
        if entry is None or _about(entry[0]) != entry[1]:
            return None
        file, _, cached, is_package, *_ = entry
        spec = ModuleSpec(name, _Loader(name, file, self), origin=file, is_package=is_package)
        spec.has_location = True
        spec.cached = cached
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]  # noqa: PTH120
        return spec

    def code(self, name: str) -> CodeType | None:
        """The code of a module; None if it is not here.

        It is believed as Python believes its own compiled files: who may write those may write this.
        """
        if name not in self._entries:
            return None
        *_, start, end = self._entries[name]
        try:
            found: CodeType = marshal.loads(self._codes[start:end])  # noqa: S302
        except _UNREADABLE:
            return None
        return found

    def close(self) -> None:
        """Find nothing more. If modules were imported that the file lacks, they are in it from now on.

        Where Python may not keep compiled files (`PYTHONDONTWRITEBYTECODE`, a folder of another user),
        nothing is written. Twice is fine.
        """
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            lacking = self._lacking()
            if lacking and not sys.dont_write_bytecode:
                with contextlib.suppress(OSError):
                    self._write(lacking)
        self._entries, self._codes = {}, memoryview(b"")

    def _lacking(self) -> dict[str, ModuleSpec]:
        """Modules that were imported from folders."""
        return {
            name: module.__spec__
            for name, module in sys.modules.copy().items()
            if name.partition(".")[0] == self._package
            and name not in self._before
            and module.__spec__ is not None
            and type(module.__spec__.loader) is SourceFileLoader
        }

    def _write(self, lacking: dict[str, ModuleSpec]) -> None:
        entries: dict[str, _Entry] = {}
        codes = bytearray()
        for name, (file, about, cached, is_package, start, end) in self._entries.items():
            if name not in lacking and _about(file) == about:
                begin = len(codes)
                codes += self._codes[start:end]
                entries[name] = file, about, cached, is_package, begin, len(codes)
        for name, spec in lacking.items():
            loader = spec.loader
            assert isinstance(loader, SourceFileLoader)
            file, begin = loader.path, len(codes)
            about = _about(file)  # before it is read: what is written meanwhile is not taken for it
            codes += marshal.dumps(loader.get_code(name))
            is_package = spec.submodule_search_locations is not None
            entries[name] = file, about, spec.cached, is_package, begin, len(codes)
        head = marshal.dumps((self._path, len(codes), entries))
        temporary = f"{self._path}.{os.getpid()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(fd, "wb") as bundle:
                bundle.write(MAGIC_NUMBER + len(head).to_bytes(4, "little") + head + codes)
            os.replace(temporary, self._path)  # noqa: PTH105 - at once: what is read is whole
        except OSError:
            os.unlink(temporary)  # noqa: PTH108
            raise


class _Loader(SourceFileLoader):
    """Loads a module whose code is in a bundle; the source is where it always is."""

    def __init__(self, name: str, file: str, bundle: CodeBundle) -> None:
        super().__init__(name, file)
        self._bundle = bundle

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code: from the bundle, or from the folder once that is closed."""
        return self._bundle.code(fullname) or super().get_code(fullname)


def _about(file: str) -> _About:
    """Of a source; zeros without it. An installer may give two versions one time, but not one change."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def import_from_bundle() -> CodeBundle:
    """Import this package's modules from their bundle until it is closed."""
    own = cache_from_source(__file__)
    bundle = CodeBundle(__name__.partition(".")[0], f"{own.removesuffix('.pyc')}.codes")
    sys.meta_path.insert(0, bundle)
    return bundle
