"""Compilation caching: prepared models go into a client's files and come back in another process.

Saving is best effort: whatever goes wrong with files, key or disk is logged, and the model is prepared
all the same (device:§2). Loading trusts nothing that others could have written: see `cache_format`.

A token names an entry, and the client chooses it: a driver cannot tell two models with the same token
apart (device:§3). If a client gives two models one token, it gets the one that was saved last.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from typing import Final

import nnburst.executor
from nnburst.driver.model.cache.cache_files import check_cache_file, overwrite, read_copy
from nnburst.driver.model.cache.cache_format import Entry, seal, sha256, unseal
from nnburst.driver.model.cache.cache_key import cache_key
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import Executor, PrepareOptions
from nnburst.executor.caching import CachingExecutor
from nnburst.fmq.cores import thread_budget
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.validation.values import validate_cache_token
from nnburst.tracing.slices import Layer, Phase, trace

log = logging.getLogger(__name__)

_NO_FILES: Final = NumberOfCacheFiles(0, 0)


class CompilationCache:
    """Saves and loads the prepared models of one executor. Thread-safe."""

    def __init__(self, executor: Executor, version_string: str) -> None:
        """Cache for `executor`, if it can be cached for.

        Args:
            executor: with or without the optional part of `nnburst.executor.caching`.
            version_string: the device's; another version's caches are not loaded.
        """
        self._executor = executor if isinstance(executor, CachingExecutor) else None
        self._version_string = version_string

    @property
    def files_needed(self) -> NumberOfCacheFiles:
        """NNAPI: getNumberOfCacheFilesNeeded."""
        return _NO_FILES if self._executor is None else self._executor.cache_files

    def warm_up(self) -> None:
        """Do now what the first `save` or `load` of this process would do."""
        if self._executor is not None:
            _build()

    def save(
        self,
        prepared: PreparedModel,
        token: bytes,
        model_cache: Sequence[int],
        data_cache: Sequence[int],
    ) -> bool:
        """Write a model that was just prepared to its client's files; whether that was done.

        Args:
            prepared: not executed yet.
            token: 32 bytes.
            model_cache: borrowed descriptors; none if the client wants nothing cached.
            data_cache: likewise.
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
        entry = Entry(
            cached.model,
            prepared.preference,
            prepared.priority,
            prepared.num_threads,
            cached.program,
        )
        sealed = seal(entry, cached.constants, writer=self._writer, token=token, key=key)
        # The model cache goes last: until it is complete, the pair cannot be loaded.
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
    ) -> PreparedModel:
        """Prepare a model from its files alone (NNAPI: prepareModelFromCache).

        Args:
            token: as at `save`.
            model_cache: borrowed descriptors, as many as `files_needed`.
            data_cache: likewise.
            attributes: of vendor extensions; the token stands for them, too.

        Raises:
            InvalidArgument: as `check` does, and so GeneralFailure.
            GeneralFailure: the files are not what `save` wrote for this token.
            NnburstError: the executor's reason.
        """
        executor = self.check(token, model_cache, data_cache)
        copy = read_copy(model_cache[0], "model_cache[0]")
        constants = read_copy(data_cache[0], "data_cache[0]") if data_cache else bytearray()
        key = cache_key()
        entry, cached = unseal(copy, constants, writer=self._writer, token=token, key=key)
        threads = min(entry.num_threads, thread_budget())
        options = PrepareOptions(entry.preference, entry.priority, threads, attributes)
        with trace(Layer.DRIVER, Phase.COMPILATION, "prepare from the cache"):
            prepared = executor.prepare_from_cache(cached, options)
        return PreparedModel(entry.model, prepared, entry.preference, entry.priority)

    def check(
        self, token: bytes, model_cache: Sequence[int], data_cache: Sequence[int]
    ) -> CachingExecutor:
        """What can be checked before a file is read; who would load from it.

        Args:
            token: as at `load`, and so are the descriptors.
            model_cache: borrowed.
            data_cache: borrowed.

        Raises:
            InvalidArgument: device:P5: token or number of files are wrong, or a descriptor is not a regular
                file opened to be read and written.
            GeneralFailure: nothing is cached here.
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
    """Tells two states of the executors' sources apart, also if both carry the same version.

    What is cached is what they made of a model, so it must not outlive a change of how they do that.
    """
    lines = []
    for folder, folders, names in os.walk(os.path.dirname(nnburst.executor.__file__)):  # noqa: PTH120
        folders.sort()
        for path in (f"{folder}/{name}" for name in sorted(names) if name.endswith(".py")):
            info = os.stat(path)  # noqa: PTH116 - pathlib takes ten times as long, at every start
            lines.append(f"{path} {info.st_size} {info.st_mtime_ns}\n")
    return sha256("".join(lines).encode()).hex()[:16]
