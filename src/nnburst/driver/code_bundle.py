"""The compiled modules that a driver imports in one file, from which the next driver imports them.

A driver imports some two hundred small modules, and as many of numpy and of the standard library. To find
each in its folder and to open and check its own compiled file takes longer than to execute it. Like Python's
compiled files the one file lies in a folder `__pycache__`, is written by the first process that may, and
counts for a module only as long as the source is what it was and is the one that would be found. What it
lacks is imported as ever, and is in the next one (ADR 38).
"""

from __future__ import annotations

import _imp
import marshal
import mmap
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

# What is imported here comes from its folder: contextlib and typing alone have twenty modules behind them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import Final

#: What reading a file that is not there, or is no bundle, raises.
_UNREADABLE: Final = (OSError, EOFError, ValueError, TypeError)
_MARK: Final = b"nnburst codes 4\n"
_HEAD: Final = len(_MARK) + 4
#: Gives functions of numpy their documentation, which a driver shows to no one. It is empty in a bundle, so
#: that a driver goes without it as every Python under -OO does.
_DOCUMENTATION: Final = "numpy._core._add_newdocs"
#: What every driver imports of others. Executors of others are imported from their folders.
_OTHERS: Final = frozenset({"numpy", "msgspec", "typing_extensions"}) | sys.stdlib_module_names

#: Packages that not every driver needs.
_APART: Final = ("nnburst.executor.reference", "nnburst.executor.onnxruntime")

if TYPE_CHECKING:
    #: When a source was written and put where it is, in nanoseconds, and its bytes.
    About = tuple[int, int, int]
    #: Of a module: its source and what that was; where Python keeps its own compiled form; whether it is a
    #: package.
    Entry = tuple[str, About, str | None, bool]
    Codes = dict[str, CodeType]


class CodeBundle:
    """Finds modules in one file, as an entry of `sys.meta_path`. Not thread-safe."""

    def __init__(self, package: str, path: str) -> None:
        """Open the bundle of `package` at `path`; without one for this Python, nothing is found."""
        self._package = package
        self._bundled = _OTHERS | {package}
        self._path = path
        self._entries: dict[str, Entry] = {}
        #: Where the codes of each group begin and end behind all entries, and those that were read.
        self._places: dict[str, tuple[int, int]] = {}
        self._codes: dict[str, Codes] = {}
        self._codes_start = 0
        self._before = frozenset(sys.modules)
        #: What lies in each folder of `sys.path` that was looked into, without suffixes.
        self._names: dict[str, frozenset[str] | None] = {}
        self._content = memoryview(b"")
        try:
            self._open()
        except _UNREADABLE:
            pass

    def _open(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A copy would be a thousand pages that are zeroed first. The file is replaced, never changed.
            content = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        finally:
            os.close(fd)
        start = bytes(content[:_HEAD])
        codes_start = _HEAD + int.from_bytes(start[len(_MARK) :], "little")
        codes_size = len(content) - codes_start
        if start.startswith(_MARK) and codes_size >= 0:
            *about, entries, places = marshal.loads(content[_HEAD:codes_start])  # noqa: S302 - as below
            if about == [sys.version, self._path, codes_size]:
                self._entries, self._places = entries, places
                self._content, self._codes_start = content, codes_start

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it; None for what is not here or has changed.

        So it is if another module of that name would be found first.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        file, about, cached, is_package = entry
        inside = os.path.dirname(file)  # noqa: PTH120 - pathlib is imported from here
        folder = os.path.dirname(inside) if is_package else inside  # noqa: PTH120
        if not self._is_found_in(folder, name, path) or _about(file) != about:
            return None
        spec = ModuleSpec(name, _Loader(name, file, self), origin=file, is_package=is_package)
        spec.has_location = True
        spec.cached = cached
        if is_package:
            spec.submodule_search_locations = [inside]
        return spec

    def _is_found_in(self, folder: str, name: str, path: Sequence[str] | None) -> bool:
        """Whether `folder` is the first of those to search that has the module `name`."""
        if path is not None:  # of a package: what lies in its first folder comes first
            return bool(path) and path[0] == folder
        for searched in sys.path:
            if searched == folder:
                return True
            if searched not in self._names:
                self._names[searched] = _names_in(searched)
            names = self._names[searched]
            if names is None or name in names:
                return False
        return False

    def code(self, name: str) -> CodeType | None:
        """The code of a module; None if it is not here.

        It is believed as Python believes its own compiled files: who may write those may write this.
        """
        if name not in self._entries:
            return None
        group = _group_of(name, self._package)
        if group not in self._codes:
            self._codes[group] = self._read(group)
        return self._codes[group].pop(name, None)  # a module is executed once

    def _read(self, group: str) -> Codes:
        start, end = self._places.get(group, (0, 0))
        place = slice(self._codes_start + start, self._codes_start + end)
        try:
            found: Codes = marshal.loads(self._content[place])  # noqa: S302
        except _UNREADABLE:
            self._entries = {}  # so that all is imported from folders, and written again
            return {}
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
                try:
                    self._write(lacking)
                except OSError:
                    pass
        self._entries, self._codes, self._content = {}, {}, memoryview(b"")

    def _lacking(self) -> dict[str, ModuleSpec]:
        """Modules that were imported from folders."""
        return {
            name: spec
            for name, module in sys.modules.copy().items()
            if name.partition(".")[0] in self._bundled
            and name not in self._before
            and (spec := getattr(module, "__spec__", None)) is not None
            and spec.name == name  # a module may have more than one name: os.path is posixpath
            and type(spec.loader) is SourceFileLoader
        }

    def _write(self, lacking: dict[str, ModuleSpec]) -> None:
        groups = {
            group: self._read(group) for group in self._places
        }  # before entries are looked at
        entries = {
            name: entry
            for name, entry in self._entries.items()
            if name not in lacking and _about(entry[0]) == entry[1]
        }
        for found in groups.values():
            for name in found.keys() - entries.keys():
                del found[name]
        for name, spec in lacking.items():
            loader = spec.loader
            assert isinstance(loader, SourceFileLoader)
            file = loader.path
            about = _about(file)  # before it is read: what is written meanwhile is not taken for it
            empty = name == _DOCUMENTATION
            code = compile("", file, "exec") if empty else loader.get_code(name)
            if code is not None:
                is_package = spec.submodule_search_locations is not None
                entries[name] = file, about, spec.cached, is_package
                groups.setdefault(_group_of(name, self._package), {})[name] = code
        codes = bytearray()
        places: dict[str, tuple[int, int]] = {}
        for group, found in groups.items():
            begin = len(codes)
            codes += marshal.dumps(found)
            places[group] = begin, len(codes)
        head = marshal.dumps((sys.version, self._path, len(codes), entries, places))
        temporary = f"{self._path}.{os.getpid()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(fd, "wb") as bundle:
                bundle.write(_MARK + len(head).to_bytes(4, "little") + head + codes)
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


def _group_of(name: str, package: str) -> str:
    """What is read at once: of the package nearly all, so that names that its modules share are made once."""
    if not name.startswith(f"{package}."):
        return name
    return next((apart for apart in _APART if name.startswith(apart)), package)


def _about(file: str) -> About:
    """Of a source; zeros without it. An installer may give two versions one time, but not one change."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _names_in(folder: str) -> frozenset[str] | None:
    """Of what may be modules, without suffixes; None if that cannot be seen, as in an archive."""
    try:
        return frozenset(name.partition(".")[0] for name in os.listdir(folder or "."))  # noqa: PTH208
    except FileNotFoundError:
        return frozenset()
    except OSError:
        return None


def import_from_bundle() -> CodeBundle:
    """Import what a driver imports from its bundle until that is closed.

    There is one for each installation of Python that has this package, because others have another numpy.
    """
    assert __spec__ is not None
    own = (__spec__.cached or __file__).removesuffix(".pyc")
    installation = _imp.source_hash(0, sys.prefix.encode()).hex()
    bundle = CodeBundle(__name__.partition(".")[0], f"{own}-{installation}.codes")
    sys.meta_path.insert(0, bundle)
    return bundle
