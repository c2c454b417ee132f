"""Stores prepared models in a client's cache files, sealed with a key of the user.

So another process can prepare a model that was compiled once without compiling it. Saving is best effort: a
failure of files, key or disk is logged, and the model is prepared all the same (device:§2). Loading checks
everything that others could have written.

The client chooses the token that names an entry: a driver cannot distinguish two models with the same token
(device:§3). If a client uses one token for two models, it gets the one that was saved last.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import stat
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

import nnburst.executor
from nnburst.control.address import state_directory
from nnburst.control.channel import Fds
from nnburst.driver.confinement import HELD_FDS
from nnburst.driver.model.answers import checked_object
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import Cached, CachingExecutor, Executor, Octets, PrepareOptions
from nnburst.fmq.cores import thread_budget
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles
from nnburst.hal.validation.values import validate_cache_token
from nnburst.tracing.slices import Layer, Phase, trace

# -- A client's cache files as descriptors ---------------------------------------------------------
# They are regular files, opened to be read and written. Another process may write to a file, truncate it
# or replace its content at any time. So a file is copied once, by reading (a mapping of a file that shrinks
# would crash the process), and only the copy is used.

#: Longest cache file that is read.
MAX_CACHE_BYTES: Final = 1 << 30
_CHUNK: Final = 1 << 20


class CacheFiles:
    """The cache files that were sent with a call; this object owns them.

    Attributes:
        model: descriptors of the model cache, in order.
        data: descriptors of the data cache, in order.
    """

    def __init__(self, fds: Fds, first: int, model: int, data: int) -> None:
        """Own `model` and then `data` descriptors of a message, from the one numbered `first` on.

        Raises:
            ResourceExhausted: the driver has too many descriptors of the client already; none is taken.
        """
        self._charge = HELD_FDS.charge(model + data)
        self._fds = Fds(fds.take(first + at) for at in range(model + data))
        found = list(self._fds)
        self.model: Final = found[:model]
        self.data: Final = found[model:]

    def close(self) -> None:
        """Close them all."""
        self._fds.close()
        self._charge.close()


def check_cache_file(fd: int, name: str) -> None:
    """Refuse a descriptor that cannot be a cache file; `name` is for the message.

    Raises:
        InvalidArgument: it is not a regular file that was opened to be read and written.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise InvalidArgument(f"device:P5: {name} is not a regular file")
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        raise InvalidArgument(f"device:P5: {name} is not opened to be read and written")


def read_copy(fd: int, name: str) -> bytearray:
    """Copy a whole file to private memory, whatever the descriptor's offset is.

    Raises:
        GeneralFailure: the file is longer than MAX_CACHE_BYTES, or cannot be read.
    """
    try:
        size = os.fstat(fd).st_size
        if size > MAX_CACHE_BYTES:
            raise GeneralFailure(f"{name} has {size} bytes, at most {MAX_CACHE_BYTES}")
        content = bytearray(size)
        done = 0
        with memoryview(content) as view:
            while done < size and (read := os.preadv(fd, [view[done:]], done)):
                done += read
    except OSError as error:
        raise GeneralFailure(f"{name} cannot be read: {error}") from error
    del content[done:]  # it was truncated meanwhile
    return content


def overwrite(fd: int, content: bytes | bytearray) -> None:
    """Replace the content of a file, whatever the descriptor's offset is.

    Raises:
        OSError: the file cannot be written; it is then emptied if that is possible.
    """
    os.ftruncate(fd, 0)
    try:
        view = memoryview(content)
        done = 0
        while done < len(view):
            done += os.pwrite(fd, view[done : done + _CHUNK], done)
    except OSError:
        os.ftruncate(fd, 0)
        raise


# -- The format of cache files, as pure functions --------------------------------------------------
# The data cache has only the constants. The model cache has a header and a payload:
#
#     offset  bytes
#     0       8      magic
#     8       4      version of the format, little-endian like all numbers
#     12      4      0
#     16      8      bytes of the payload, which ends the file
#     24      8      bytes of the data cache
#     32      32     SHA-256 of the data cache
#     64      32     HMAC-SHA-256, with the user's key, of the writer, the token, the header up to here, and
#                    the payload
#     96             payload: msgpack of `Entry`
#
# Apart from its length, nothing of a file is read before the HMAC has been compared.


FORMAT_VERSION: Final = 1
_MAGIC: Final = b"nnbcache"
_HEADER: Final = struct.Struct("<8sIIQQ32s")
_MAC_BYTES: Final = 32
#: Bytes of a model cache before its payload.
PREFIX_BYTES: Final = _HEADER.size + _MAC_BYTES


class CacheEntry(msgspec.Struct, frozen=True, array_like=True):
    """Everything except constants that a driver needs to prepare a model again.

    Attributes:
        model: the model, for the validation of requests.
        preference: the preference of its preparation.
        priority: the priority of its preparation.
        num_threads: the number of threads of its preparation.
        program: the executor's own form of the model.
    """

    model: Model
    preference: ExecutionPreference
    priority: Priority
    num_threads: int
    program: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CacheEntry).decode


def seal(entry: CacheEntry, constants: Octets, *, writer: str, token: bytes, key: bytes) -> bytes:
    """Make the model cache of `entry`, whose data cache is `constants`.

    Args:
        entry: everything except the constants.
        constants: bytes of the data cache.
        writer: identity of the driver; a driver with another identity cannot load it.
        token: the client's token, 32 bytes.
        key: the user's key.
    """
    payload = _encode(entry)
    digest = sha256(constants)
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(payload), len(constants), digest)
    return b"".join((header, _mac(writer, token, (header, payload), key), payload))


def unseal(
    model_cache: Octets, constants: Octets, *, writer: str, token: bytes, key: bytes
) -> tuple[CacheEntry, Cached]:
    """Check a model cache, and return the entry that was sealed in it.

    Args:
        model_cache: a private copy of the file, which no other process can change.
        constants: a private copy of the data cache.
        writer: identity of this driver.
        token: the client's token, 32 bytes.
        key: the user's key.

    Raises:
        GeneralFailure: either file was changed, or the writer, the token or the key differs.
    """
    if len(model_cache) < PREFIX_BYTES:
        raise GeneralFailure(f"a model cache of {len(model_cache)} bytes, at least {PREFIX_BYTES}")
    view = memoryview(model_cache)
    header, mac = view[: _HEADER.size], view[_HEADER.size : PREFIX_BYTES]
    payload = view[PREFIX_BYTES:]
    if not _are_equal(_mac(writer, token, (header, payload), key), mac):
        raise GeneralFailure(
            "the model cache is not what this driver wrote for this token: it was changed, or comes"
            " from another driver, version or user, or belongs to another model"
        )
    magic, version, zero, payload_bytes, data_bytes, digest = _HEADER.unpack(header)
    expected = (_MAGIC, FORMAT_VERSION, 0, len(payload))
    if (magic, version, zero, payload_bytes) != expected:
        raise GeneralFailure("the model cache is of another format than this driver's")
    # DEVIATES: in NNAPI a changed data cache may give wrong results; here it is refused.
    if len(constants) != data_bytes or sha256(constants) != digest:
        raise GeneralFailure("the data cache is not the one that belongs to the model cache")
    try:
        entry = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GeneralFailure(f"the model cache cannot be read: {error}") from error
    return entry, Cached(entry.model, entry.program, constants)


def sha256(data: Octets) -> bytes:
    """The SHA-256 digest. OpenSSL is loaded only here: it takes 10 ms, which drivers without a cache save."""
    import hashlib

    return hashlib.sha256(data).digest()


def _are_equal(one: bytes, other: bytes | memoryview) -> bool:
    """Compare in a time that does not depend on where they differ."""
    import hmac

    return hmac.compare_digest(one, other)


def _mac(writer: str, token: bytes, parts: Iterable[bytes | memoryview], key: bytes) -> bytes:
    import hmac

    made = hmac.new(key, digestmod="sha256")
    for name in (writer.encode(), token):
        made.update(struct.pack("<Q", len(name)) + name)
    for part in parts:  # the header has the payload's length
        made.update(part)
    return made.digest()


# -- The user's key --------------------------------------------------------------------------------


KEY_BYTES: Final = 32
_NAME: Final = "compilation_cache.key"
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
#: Seconds after which no process can still be making a key.
_LEFT_OVER_AFTER: Final = 60.0


def cache_key() -> bytes:
    """The user's key, made at the first use.

    A process with the key can forge model caches for drivers of this user, so its file has mode 0600. If
    several processes make the key at the same time, all of them use the same one in the end.

    Raises:
        GeneralFailure: it can neither be read nor made, or other users may read it.
    """
    path = state_directory() / _NAME
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            _make(path)
            return _read(path)
    except OSError as error:
        raise GeneralFailure(f"the key of the compilation cache: {error}") from error


def has_cache_key() -> bool:
    """Whether the key exists, so that no worker needs to write to its folder."""
    try:
        return (state_directory() / _NAME).exists()
    except (GeneralFailure, OSError):
        return False


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN)  # it may be a FIFO
    try:
        info = os.fstat(fd)
        if (
            not stat.S_ISREG(info.st_mode)
            or info.st_uid != os.geteuid()
            or info.st_mode & 0o077
            or info.st_size != KEY_BYTES
        ):
            raise GeneralFailure(
                f"{path} must be a file of {KEY_BYTES} bytes and mode 0600 that you own;"
                " without it a new one is made, and models are compiled once more"
            )
        key = os.read(fd, KEY_BYTES)
    finally:
        os.close(fd)
    if len(key) != KEY_BYTES:
        raise GeneralFailure(f"{path} was truncated while it was read")
    return key


def _make(path: Path) -> None:
    """Make the key in a complete file and give it its name; the first process succeeds."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_left_over(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        try:
            os.write(fd, os.urandom(KEY_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _remove_left_over(path: Path) -> None:
    """Remove files of workers that ended while they were making the key."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - _LEFT_OVER_AFTER:
                left.unlink()


# -- Saving and loading ----------------------------------------------------------------------------


log = logging.getLogger(__name__)

_NO_FILES: Final = NumberOfCacheFiles(0, 0)


class CompilationCache:
    """Saves and loads the prepared models of one executor. Thread-safe."""

    def __init__(self, executor: Executor, version_string: str) -> None:
        """Cache for `executor`, if it supports that.

        Args:
            executor: with or without the optional methods for caching in `nnburst.executor.base`.
            version_string: the device's version; caches of another version are not loaded.
        """
        self._executor = executor if isinstance(executor, CachingExecutor) else None
        self._version_string = version_string

    @property
    def files_needed(self) -> NumberOfCacheFiles:
        """Numbers of model and data files (NNAPI: getNumberOfCacheFilesNeeded)."""
        return _NO_FILES if self._executor is None else self._executor.cache_files

    def warm_up(self) -> None:
        """Do the one-time work of this process's first `save` or `load` now."""
        if self._executor is not None:
            _build()

    def save(
        self,
        prepared: PreparedModel,
        token: bytes,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
    ) -> bool:
        """Write a newly prepared model to its client's files; returns whether that succeeded.

        Args:
            prepared: a model that was not executed yet.
            token: 32 bytes.
            model_cache: borrowed descriptors; none if the client does not want to cache.
            data_cache: the same.
        """
        if not model_cache and not data_cache:
            return False
        try:
            self._check(model_cache, data_cache)
            return self._save(prepared, token, model_cache, data_cache)
        except (NnburstError, OSError, MemoryError) as error:
            log.warning("a model is prepared, but could not be cached: %s", error)
        except Exception:  # of an executor: what it prepared is as good as before
            log.exception("a model is prepared, but could not be cached")
        return False

    def _save(
        self,
        prepared: PreparedModel,
        token: bytes,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
    ) -> bool:
        cached = prepared.to_cache()
        if cached is None:
            for fd in (*model_cache, *data_cache):
                overwrite(fd, b"")
            return False
        if cached.constants and not data_cache:
            raise GeneralFailure("the executor keeps constants but declares no data cache file")
        key = cache_key()
        entry = CacheEntry(
            cached.model,
            prepared.preference,
            prepared.priority,
            prepared.num_threads,
            cached.program,
        )
        sealed = seal(entry, cached.constants, writer=self._writer, token=token, key=key)
        # The model cache is written last: until it is complete, the pair cannot be loaded.
        for fd in model_cache:
            overwrite(fd, b"")
        for fd in data_cache:
            overwrite(fd, cached.constants)
        for fd in model_cache:
            overwrite(fd, sealed)
        return True

    def load(
        self,
        token: bytes,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
        attributes: tuple[ExtensionAttribute, ...] = (),
        deadline_ns: int | None = None,
    ) -> PreparedModel:
        """Prepare a model from its files alone (NNAPI: prepareModelFromCache).

        Args:
            token: the token that was given to `save`.
            model_cache: descriptors, as many as `files_needed`; the caller closes them.
            data_cache: the same.
            attributes: of vendor extensions; the token covers them, too.
            deadline_ns: time on CLOCK_BOOTTIME, for the executor.

        Raises:
            InvalidArgument: see `check`.
            GeneralFailure: see `check`; or `save` did not write these files for this token.
            NnburstError: the executor raised it.
        """
        executor = self.check(token, model_cache, data_cache)
        copy = read_copy(model_cache[0], "model_cache[0]")
        constants = read_copy(data_cache[0], "data_cache[0]") if data_cache else bytearray()
        key = cache_key()
        entry, cached = unseal(copy, constants, writer=self._writer, token=token, key=key)
        threads = min(entry.num_threads, thread_budget())
        options = PrepareOptions(entry.preference, entry.priority, threads, attributes, deadline_ns)
        with trace(Layer.DRIVER, Phase.COMPILATION, "prepare from the cache"):
            prepared = executor.prepare_from_cache(cached, options)
        checked_object(executor, "prepare_from_cache", prepared, "a Prepared", "bind")
        return PreparedModel(entry.model, prepared, entry.preference, entry.priority)

    def check(
        self, token: bytes, model_cache: Sequence[int], data_cache: Sequence[int]
    ) -> CachingExecutor:
        """Check everything that can be checked before a file is read; returns the executor for loading.

        Args:
            token: as for `load`, and so are the descriptors.
            model_cache: the caller closes them.
            data_cache: the caller closes them.

        Raises:
            InvalidArgument: device:P5: token or number of files are wrong, or a descriptor is not a regular
                file opened to be read and written.
            GeneralFailure: the executor does not support caching.
        """
        validate_cache_token(token)
        if self._executor is None:
            raise GeneralFailure("this device caches no compilations")
        self._check(model_cache, data_cache)
        return self._executor

    def _check(self, model_cache: Sequence[int], data_cache: Sequence[int]) -> None:
        given = NumberOfCacheFiles(len(model_cache), len(data_cache))
        if given != self.files_needed:
            raise InvalidArgument(
                f"device:P5: {given.model_cache} model and {given.data_cache} data cache files, expected"
                f" {self.files_needed.model_cache} and {self.files_needed.data_cache}"
            )
        for name, fds in (("model_cache", model_cache), ("data_cache", data_cache)):
            for at, fd in enumerate(fds):
                check_cache_file(fd, f"{name}[{at}]")

    @property
    def _writer(self) -> str:
        return f"{self._version_string} {_build()}"


@functools.cache
def _build() -> str:
    """A number that changes with the executors' sources, even if the version stays the same.

    A cache has the executors' own form of a model, so it must become invalid when that form changes.
    """
    lines = []
    for folder, folders, names in os.walk(os.path.dirname(nnburst.executor.__file__)):  # noqa: PTH120
        folders.sort()
        for path in (f"{folder}/{name}" for name in sorted(names) if name.endswith(".py")):
            info = os.stat(path)  # noqa: PTH116 - pathlib takes ten times as long, at every start
            lines.append(f"{path} {info.st_size} {info.st_mtime_ns}\n")
    return sha256("".join(lines).encode()).hex()[:16]
