"""Manages a directory of cached compilations, and computes the tokens that name them.

The second start of a program finds the cache files of the first, and the driver compiles nothing. If
anything is wrong with them, the model is compiled and cached anew.

NNAPI: TokenHasher.cpp, CompilationBuilder.cpp, ExecutionPlan.cpp, Manager.cpp (the framework's part).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import pack
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from nnburst.client.arguments import wait_left
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.staging import CarriesPools, bare_model, check_pools
from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference, Priority
from nnburst.hal.errors import Closed, DeadObject, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.extensions import ExtensionAttribute, check_attributes
from nnburst.hal.model import Model
from nnburst.hal.types import NO_CACHE_TOKEN, NumberOfCacheFiles
from nnburst.hal.validation.values import validate_cache_token
from nnburst.tracing.slices import Layer, Phase, trace


def cache_token(
    client: bytes,
    operations: Sequence[tuple[int, int]],
    device: str,
    version: str,
    *,
    preference: ExecutionPreference,
    priority: Priority,
    attributes: Sequence[ExtensionAttribute] = (),
) -> bytes:
    """Compute the token for the driver, 32 bytes; it depends on everything that a compilation depends on.

    Args:
        client: the application's token, 32 bytes, which names the model.
        operations: source model and number of each operation of a plan's step; empty for a whole model.
        device: the device's name.
        version: the device's version string.
        preference: the preference of the compilation.
        priority: the priority of the compilation.
        attributes: the attributes of the compilation; their order does not matter.

    Raises:
        InvalidArgument: validation:S11: `client` does not have 32 bytes; or `check_attributes` refuses
            `attributes`.
    """
    import hashlib  # OpenSSL: programs without a cache have no use for it

    validate_cache_token(client)
    checked = check_attributes(attributes)
    hashed = hashlib.sha256(client)
    for source_model, operation in operations:
        hashed.update(pack("<Ii", source_model, operation))
    hashed.update(device.encode() + version.encode())
    hashed.update(pack("<ii", preference, NDK_PRIORITIES[priority]))
    for extension, code, value in sorted(checked):
        hashed.update(extension.encode() + pack("<H", code) + value)
    return hashed.digest()


def cache_paths(
    folder: Path, token: bytes, needed: NumberOfCacheFiles
) -> tuple[list[Path], list[Path]]:
    """Names of the model and data files of one compilation, from letters of the token, kind and number."""
    letters = "".join(f"{chr(65 + (byte & 15))}{chr(65 + (byte >> 4))}" for byte in token)
    return (
        [folder / f"{letters}1{at}" for at in range(needed.model_cache)],
        [folder / f"{letters}2{at}" for at in range(needed.data_cache)],
    )


class Compiler(Protocol):
    """A device, for code that caches its compilations."""

    @property
    def name(self) -> str:
        """The device's name."""

    @property
    def version_string(self) -> str:
        """The driver's version."""

    def _number_of_cache_files_needed(self, seconds: float) -> NumberOfCacheFiles:
        """Numbers of files in which a compilation is cached."""

    def prepare_from_cache(
        self,
        model: Model,
        cache: CacheFiles,
        *,
        preference: ExecutionPreference,
        attributes: Sequence[ExtensionAttribute],
        timeout: float,
    ) -> PreparedModel:
        """Prepare the model that is cached in the files."""

    def _prepare_within(
        self,
        seconds: float,
        model: Model | CarriesPools,
        **options: Any,  # noqa: ANN401 - those of `prepare_async`
    ) -> PreparedModel:
        """Compile the model, and return it prepared."""


log = logging.getLogger(__name__)

_OPEN: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class CacheFiles:
    """Files that a compilation is cached in, for `Device.prepare_async` and `Device.prepare_from_cache`.

    Attributes:
        model: descriptors, opened to be read and written, as many as
            `Device.number_of_cache_files_needed.model_cache`; they stay the caller's.
        data: the same for `data_cache`.
        token: 32 bytes that name the compilation. A driver cannot distinguish two models with the same token,
            so it must depend on model, options and the driver's version.
    """

    model: Sequence[int] = ()
    data: Sequence[int] = ()
    token: bytes = NO_CACHE_TOKEN


def check_files(cache: CacheFiles) -> CacheFiles:
    """Check that cache files are given as such, and return them.

    Raises:
        InvalidArgument: they are not.
    """
    if not isinstance(cache, CacheFiles):
        raise InvalidArgument(f"cache is of type {type(cache).__name__}, expected CacheFiles")
    return cache


def model_token(model: Model, pools: Iterable[Any]) -> bytes:
    """Compute a token of 32 bytes that names a model by its content.

    Args:
        model: the token depends on all of it, hints included.
        pools: arrays or pools, in the model's order; the token depends on all their bytes.
    """
    import hashlib  # OpenSSL: programs without a cache have no use for it

    hashed = hashlib.sha256(msgspec.msgpack.encode(model))
    for pool in pools:
        content = np.ascontiguousarray(np.asarray(pool)).reshape(-1).view(np.uint8)
        hashed.update(pack("<Q", content.size))
        hashed.update(content.data)
    return hashed.digest()


class CachedCompilation:
    """One compilation of one model in a directory."""

    def __init__(
        self,
        device: Compiler,
        model: Model | CarriesPools,
        folder: str,
        token: bytes | None,
        pools: Sequence[Memory],
        options: Mapping[str, Any],
        timeout: float,
        *,
        is_final: bool = False,
    ) -> None:
        """Name the files; they are not touched yet.

        Args:
            device: the device that compiles.
            model: as for `Device.prepare`.
            folder: made if it is missing.
            token: 32 bytes that name the model; None to name it by its content.
            pools: as for `Device.prepare`.
            options: `preference`, `priority`, `num_threads` and `attributes` as for `Device.prepare`.
            timeout: seconds from now on that this and `prepare` may take together.
            is_final: whether `token` is the token for the driver already; see `cache_token`.

        Raises:
            InvalidArgument: validation:S11: the token does not have 32 bytes; or `check_attributes` refuses
                the attributes.
            NnburstError: the driver does not report how many files it needs.
        """
        self._left: Final = partial(wait_left, time.monotonic() + timeout)
        self._device = device
        self._model = model
        self._pools = pools
        self._options = options
        self._folder = Path(folder)
        bare = bare_model(model)
        if token is not None:
            validate_cache_token(token)
        # First: the driver gets ready meanwhile.
        self._needed = device._number_of_cache_files_needed(self._left())
        if token is None:
            token = model_token(
                bare, check_pools(pools) if isinstance(model, Model) else model.pools
            )
        self._token = bytes(token)
        if not is_final:
            attributes = [*options["attributes"]]
            if threads := int(options["num_threads"]):
                attributes.append(ExtensionAttribute("nnburst.num_threads", 0, pack("<i", threads)))
            self._token = cache_token(
                self._token,
                (),
                device.name,
                device.version_string,
                preference=options["preference"],
                priority=options["priority"],
                attributes=attributes,
            )
        self._paths = cache_paths(self._folder, self._token, self._needed)
        self._bare = bare

    def prepare(self) -> PreparedModel:
        """Prepare the model, from the cache if possible (see `PreparedModel.from_cache`), else anew.

        Raises:
            NnburstError: it cannot be prepared in either way; see `Device.prepare`.
        """
        if not any(self._needed):
            log.info("%s caches no compilations: each model is compiled", self._device.name)
            return self._compile(None)
        with trace(Layer.RUNTIME, Phase.COMPILATION, "look in the compilation cache"):
            found = self._load()
        return found or self._compile_and_save()

    def _load(self) -> PreparedModel | None:
        with _opened(self._paths, self._token, _OPEN) as files:
            if files is None:
                return None
            try:
                prepared = self._device.prepare_from_cache(
                    self._bare,
                    files,
                    preference=self._options["preference"],
                    attributes=self._options["attributes"],
                    timeout=self._left(),
                )
            except (Closed, DeadObject, MissedDeadline):
                raise
            except NnburstError as error:
                log.info("%s compiles once more: %s", self._device.name, error)
                return None
        log.info("%s took a model from the cache in %s", self._device.name, self._folder)
        return prepared

    def _compile_and_save(self) -> PreparedModel:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            log.warning("nothing is cached in %s, each start compiles: %s", self._folder, error)
            return self._compile(None)
        with _opened(self._paths, self._token, _OPEN | os.O_CREAT) as files:
            before = _last_written(files)
            prepared = self._compile(files)
            after = _last_written(files)
        if any(size == 0 or (size, at) in before for size, at in after):
            log.warning(
                "%s saved nothing for the cache in %s, each start compiles: the driver's log has the reason",
                self._device.name,
                self._folder,
            )
        elif files is not None:
            log.info("%s compiled a model for the cache in %s", self._device.name, self._folder)
        return prepared

    def _compile(self, files: CacheFiles | None) -> PreparedModel:
        return self._device._prepare_within(
            self._left(), self._model, pools=self._pools, cache=files, **self._options
        )


def _last_written(files: CacheFiles | None) -> list[tuple[int, int]]:
    """Size of each model file, and the time at which it was written last."""
    found = [] if files is None else [os.fstat(fd) for fd in files.model]
    return [(state.st_size, state.st_mtime_ns) for state in found]


@contextmanager
def _opened(
    paths: tuple[Sequence[Path], Sequence[Path]], token: bytes, flags: int
) -> Iterator[CacheFiles | None]:
    """Open the files; None if one of them cannot be opened."""
    with ExitStack() as stack:

        def descriptor(path: Path) -> int:
            fd = os.open(path, flags, 0o600)
            stack.callback(os.close, fd)
            return fd

        try:
            model, data = ([descriptor(path) for path in kind] for kind in paths)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            log.log(logging.DEBUG if missing else logging.WARNING, "cache file: %s", error)
            yield None
        else:
            yield CacheFiles(model, data, token)
