"""Checks and prepares models for a worker and reports the device's speed (IDevice).

The speeds come from an administrator's file, else from the file that `nnburst bench capabilities` wrote, else
from the executor; otherwise all numbers are 1. They are ratios to the reference executor on this machine;
lower is better. They are read once, when the driver starts, so they change only when a file is written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from nnburst._native import lib
from nnburst._version import __version__
from nnburst.control.address import (
    config_directory,
    replace_file,
    state_directory,
)
from nnburst.driver.model.answers import checked_object, checked_support
from nnburst.driver.model.compilation_cache import CompilationCache
from nnburst.driver.model.pools import Pool
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.weights_client import WeightsClient
from nnburst.executor.base import (
    AllocatingExecutor,
    DeviceMemory,
    Executor,
    MemoryUse,
    PackingExecutor,
    Pools,
    Prepared,
    PrepareOptions,
    ReadsConstants,
    supported_with,
)
from nnburst.executor.operations import SIGNATURES
from nnburst.fmq.cores import thread_budget
from nnburst.hal.enums import OperandType, operation_name
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.extensions import Extension, number_of, prefix_of
from nnburst.hal.model import Model, Operand
from nnburst.hal.regular_file import read_regular_file
from nnburst.hal.types import (
    Capabilities,
    OperandPerformance,
    PerformanceInfo,
    non_extension_operand_performance,
)
from nnburst.hal.validation import validate_model
from nnburst.hal.validation.values import validate_capabilities
from nnburst.hal.whole_graph import engine_of
from nnburst.tracing.slices import Layer, Phase, trace

_AS_THE_REFERENCE: Final = PerformanceInfo(1.0, 1.0)
#: The speeds of a device that was not measured: those of the reference executor.
UNMEASURED: Final = Capabilities(
    _AS_THE_REFERENCE,
    _AS_THE_REFERENCE,
    non_extension_operand_performance(_AS_THE_REFERENCE),
    _AS_THE_REFERENCE,
    _AS_THE_REFERENCE,
)
#: Longest file that is read.
_MAX_BYTES: Final = 1 << 20


class CapabilitiesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of capabilities, in JSON. Types that `operands` does not list count as infinitely slow.

    Attributes:
        operands: performance by the name of an OperandType.
        relaxed_scalar: performance of scalars of float32 that may be computed as float16.
        relaxed_tensor: the same for tensors.
        if_: overhead of IF ("if" in the file).
        while_: overhead of WHILE ("while" in the file).
        version_string: version of the measured device; the file is ignored if another version runs. Empty in
            a file for all versions.
        measured: description of the measurement, for readers of the file.
    """

    operands: dict[str, PerformanceInfo]
    relaxed_scalar: PerformanceInfo
    relaxed_tensor: PerformanceInfo
    if_: PerformanceInfo = msgspec.field(default=_AS_THE_REFERENCE, name="if")
    while_: PerformanceInfo = msgspec.field(default=_AS_THE_REFERENCE, name="while")
    version_string: str = ""
    measured: dict[str, Any] = msgspec.field(default_factory=dict)

    def capabilities(self) -> Capabilities:
        """The file's contents.

        Raises:
            InvalidArgument: validation:S3: a type is unknown or lacks a performance, or a number is not
                positive and finite.
        """
        unknown = self.operands.keys() - OperandType.__members__.keys()
        if unknown:
            raise InvalidArgument(f"validation:S3: operands: type {min(unknown)!r} is unknown")
        table = (
            OperandPerformance(OperandType[name], info) for name, info in self.operands.items()
        )
        found = Capabilities(
            self.relaxed_scalar,
            self.relaxed_tensor,
            tuple(sorted(table, key=lambda entry: entry.type)),
            self.if_,
            self.while_,
        )
        validate_capabilities(found)
        named = (self.relaxed_scalar, self.relaxed_tensor, self.if_, self.while_)
        for info in (*named, *self.operands.values()):
            if not (math.isfinite(info.exec_time) and math.isfinite(info.power_usage)):
                raise InvalidArgument("validation:S3: a number is not finite")
        return found


_decode: Final = msgspec.json.Decoder(CapabilitiesFile).decode


def capabilities_files(device: str) -> list[Path]:
    """Possible paths of a device's capabilities: an administrator's file before a measured one."""
    name = f"{quote(device, safe='')}.json"
    return [folder() / "capabilities" / name for folder in (config_directory, state_directory)]


def load_capabilities(
    device: str,
    version_string: str,
    shipped: Path | None = None,
    reported: Capabilities = UNMEASURED,
) -> Capabilities:
    """Load the capabilities of a device. A log line names the file that is used, if any.

    Args:
        device: the device's name.
        version_string: the device's version.
        shipped: file that comes with its executor, for machines that were not measured.
        reported: the capabilities to return if no file applies.
    """
    files = [] if shipped is None else [shipped]
    try:
        files = capabilities_files(device) + files
    except GeneralFailure as error:
        log.debug("no folder of capabilities is read: %s", error)
    for path in files:
        try:
            found = _read(path, version_string)
        except FileNotFoundError:
            continue
        except (ValueError, OSError, RecursionError) as error:
            log.warning("the capabilities in %s are ignored: %s", path, error)
            continue
        if found is not None:
            log.info("%s: capabilities of %s", device, path)
            return found
    return reported


def _read(path: Path, version_string: str) -> Capabilities | None:
    content = read_regular_file(path, _MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InvalidArgument(f"more than {_MAX_BYTES} bytes")
    found = _decode(content)
    if found.version_string not in ("", version_string):
        log.info("the capabilities in %s are of %s: they are ignored", path, found.version_string)
        return None
    return found.capabilities()


def store_capabilities(device: str, measured: CapabilitiesFile) -> Path:
    """Store measured numbers for drivers that start from now on; returns the file's path.

    Raises:
        InvalidArgument: the numbers break validation:S3.
        GeneralFailure: there is no folder for the file.
        OSError: the file cannot be written.
    """
    measured.capabilities()
    path = capabilities_files(device)[-1]
    replace_file(path, msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
    return path


log = logging.getLogger(__name__)


class Device:
    """A device around an executor. Thread-safe.

    DEVIATES: NNAPI asks drivers not to compute graphs on the CPU; the included drivers compute only there.

    Attributes:
        name: the name under which it is served.
        compilation_cache: saves and loads its prepared models.
        capabilities: the speeds that it reports, as read when it was made.
        type: kind of hardware, as reported by the executor.
        feature_level: highest feature level of models that the executor accepts.
        weights: provides packed weights of the service; None if this process packs by itself.
    """

    def __init__(self, name: str, executor: Executor, weights: WeightsClient | None = None) -> None:
        """Serve an executor.

        Args:
            name: the name under which it is served.
            executor: computes its models.
            weights: provides packed weights of the service, if the executor can use them.
        """
        self.name = name
        self.weights = weights
        self._executor = executor
        self.type: Final = executor.device_type
        self.feature_level: Final = executor.feature_level
        self.thread_budget: Final = thread_budget()
        self.compilation_cache: Final = CompilationCache(executor, self.version_string)
        self.capabilities: Final = load_capabilities(
            name,
            self.version_string,
            executor.capabilities_file,
            executor.capabilities or UNMEASURED,
        )

    @property
    def version_string(self) -> str:
        """The version, opaque to clients (NNAPI: getVersionString).

        It differs between all versions of a driver, and includes that of the executor's engine, if any.
        """
        executor = self._executor
        return f"nnburst {__version__} {executor.name} {executor.engine_version}".rstrip()

    def supported_extensions(self) -> tuple[Extension, ...]:
        """The extensions that models may use (NNAPI: getSupportedExtensions)."""
        return self._executor.extensions

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """Whether each operation of the main subgraph can be run (NNAPI: getSupportedOperations_1_3).

        Raises:
            InvalidArgument: the model breaks one of validation's rules.
        """
        self.check(model, pools)
        return self._supported(model, lambda: [pool.readable for pool in pools])

    def _supported(self, model: Model, views: Callable[[], Sequence[memoryview]]) -> list[bool]:
        """Ask the executor which operations it supports; `views` maps pools only if it reads constants."""
        executor = self._executor
        reads_constants = isinstance(executor, ReadsConstants)
        found = supported_with(executor, model, Pools(views() if reads_constants else ()))
        method = "supported_with" if reads_constants else "supported"
        return checked_support(executor, method, found, len(model.main.operations))

    def allocate(
        self, operand: Operand, dimensions: Sequence[int], size: int, uses: Sequence[MemoryUse]
    ) -> DeviceMemory | None:
        """Allocate memory of the device; None if it has none. See `executor.base.AllocatingExecutor`.

        Raises:
            NnburstError: the executor raised it.
        """
        executor = self._executor
        if not isinstance(executor, AllocatingExecutor):
            return None
        return executor.allocate(operand, dimensions, size, uses)

    def check(self, model: Model, pools: Sequence[object]) -> None:
        """Raise InvalidArgument if a model breaks one of validation's rules (device:P2).

        Args:
            model: hostile until checked here.
            pools: its pools, which have been checked against their declared sizes.
        """
        if len(pools) != len(model.pools):
            raise InvalidArgument(f"pools: {len(pools)} given, the model has {len(model.pools)}")
        validate_model(model, SIGNATURES)

    def check_supported(self, model: Model, views: Sequence[memoryview]) -> None:
        """Raise InvalidArgument if an operation of a checked model is not supported (device:P8)."""
        for index, supported in enumerate(self._supported(model, lambda: views)):
            if not supported:
                kind = _kind(model, model.main.operations[index].type)
                engine = engine_of(model)
                hint = f"; the executor {engine} runs such whole graphs" if engine else ""
                raise InvalidArgument(
                    f"device:P8: operation {index} ({kind}) is not supported by {self.name}{hint}"
                )

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        options: PrepareOptions,
    ) -> PreparedModel:
        """Prepare a model (NNAPI: prepareModel_1_3); at most `thread_budget` threads compute it.

        Raises:
            InvalidArgument: device:P2, or P8: an operation is not supported.
            NnburstError: the executor raised it.
        """
        self.check(model, pools)
        views = [pool.readable for pool in pools]
        self.check_supported(model, views)
        return self.prepare_checked(model, views, options)

    def prepare_checked(
        self, model: Model, views: Sequence[memoryview], options: PrepareOptions
    ) -> PreparedModel:
        """Prepare a model by the executor, without the checks of `prepare`.

        Raises:
            NnburstError: the executor raised it.
        """
        threads = min(options.num_threads, self.thread_budget)
        within = msgspec.structs.replace(options, num_threads=threads)
        with trace(Layer.DRIVER, Phase.COMPILATION, "prepare"):
            prepared = self._borrowed(model, views, within)
            if prepared is None:
                prepared = self._executor.prepare(model, Pools(views), within)
                checked_object(self._executor, "prepare", prepared, "a Prepared", "bind")
        return PreparedModel(model, prepared, options.preference, options.priority)

    def _borrowed(
        self, model: Model, views: Sequence[memoryview], options: PrepareOptions
    ) -> Prepared | None:
        """Prepare with weights that another process has packed; None if this process must pack them."""
        executor = self._executor
        if self.weights is None or not isinstance(executor, PackingExecutor):
            return None
        if options.attributes:
            return None  # what others have packed was packed without them
        with self.weights.packed(model, views, options) as files:
            if not files:
                return None
            try:
                prepared = executor.prepare_packed(model, files, options)
            except NnburstError as error:
                log.warning("a model is prepared without packed weights: %s", error)
                return None
        lib.nnb_give_memory_back()  # there may be many workers with this model
        return checked_object(executor, "prepare_packed", prepared, "a Prepared", "bind")


def _kind(model: Model, code: int) -> str:
    """The name of an operation's type, as the client that made the model uses it."""
    names = {entry.prefix: entry.name for entry in model.extension_name_to_prefix}
    if prefix_of(code) in names:
        return f"operation {number_of(code)} of {names[prefix_of(code)]}"
    return operation_name(code)
