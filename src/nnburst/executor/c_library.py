"""Loads executors written in C (nnburst/executor.h): libraries that a driver opens, and its null executor.

A library's descriptions and results are checked here and in csrc/executor.c before they are used.
Models and requests have been checked before they are handed over.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import ffi, lib
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Cached,
    Execution,
    Executor,
    MemoryUse,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
    without_constants,
)
from nnburst.executor.c_structs import (
    CMemory,
    HandedModel,
    bytes_behind,
    element_bytes,
    new_arguments,
    new_hints,
    new_message,
    new_preparation,
    not_null,
    raise_for,
    run_native,
    string_of,
    text_of,
)
from nnburst.hal.enums import DeviceType, ErrorStatus, FeatureLevel, OperandType
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, NnburstError
from nnburst.hal.extensions import Extension, ExtensionAttribute, ExtensionOperandTypeInformation
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import SCALARS, Model, Operand
from nnburst.hal.types import Capabilities, NumberOfCacheFiles, OperandPerformance, PerformanceInfo
from nnburst.hal.utils import device_name
from nnburst.hal.validation.values import validate_extensions

if TYPE_CHECKING:
    from nnburst._native import (
        nnburst_executor,
        nnbx_description,
        nnbx_device,
        nnbx_prepared,
    )

_RUN: Final = int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_hosted_run")))
#: The most bytes that an executor may write to a cache file.
_MOST_SAVED: Final = 1 << 30
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LARGEST_ALIGNMENT: Final = 4096


# -- the device ----------------------------------------------------------------


class CExecutor(Executor):
    """An executor whose functions are written in C. Thread-safe.

    Its device stays open until this object and all that was prepared or allocated with it are freed.

    Attributes:
        cache_files: how many files of each kind a model is saved in; see `nnburst.executor.base`.
    """

    cache_files: NumberOfCacheFiles = NumberOfCacheFiles(0, 0)

    def __init__(self, functions: nnburst_executor, device: nnbx_device | None = None) -> None:
        """Own a device (`load` opens libraries). Subclasses set the attributes of an executor themselves.

        Args:
            functions: a function table as large as in this version of the header.
            device: an open device; None if the executor has none.
        """
        self._functions = functions
        self._device = ffi.NULL if device is None else device
        self._alignment, self._padding = 1, 0
        self._extensions: tuple[Extension, ...] = ()

    @classmethod
    def load(cls, path: Path, options: Mapping[str, str]) -> CExecutor:
        """Load a library and open its device for this process.

        Args:
            path: path of the library.
            options: options for its device, by key.

        Raises:
            DeviceUnavailable: the library cannot be loaded, is not an executor of this ABI, or has a wrong
                description.
            NnburstError: the device cannot be opened; the library gives the reason.
        """
        message = new_message()
        functions = lib.nnb_executor_load_unlocked(os.fsencode(path.resolve()), message)
        if functions == ffi.NULL:
            raise DeviceUnavailable(f"executor: {text_of(message)}")
        device = None
        if functions.open != ffi.NULL:
            words = [
                ffi.new("char[]", os.fsencode(word)) for pair in options.items() for word in pair
            ]
            table = ffi.new("struct nnbx_option[]", max(len(options), 1))
            for at in range(len(options)):
                table[at].key, table[at].value = words[2 * at], words[2 * at + 1]
            given = ffi.new("struct nnbx_options *")
            given.size, given.options, given.option_count = (
                ffi.sizeof("struct nnbx_options"),
                table,
                len(options),
            )
            made = ffi.new("nnbx_device **")
            status = functions.open(given, made, message)
            raise_for(status, f"{path.name}: open", message)
            device = ffi.gc(not_null(made[0], f"{path.name}: open"), functions.close)
        elif options:
            raise DeviceUnavailable(f"{path.name} takes no options, got {', '.join(options)}")
        self = cls(functions, device)
        self._take_description(path)
        return self

    def _take_description(self, path: Path) -> None:
        said = ffi.new("struct nnbx_description *")
        lib.nnb_executor_describe_nothing(said)
        if self._functions.describe != ffi.NULL:
            status = self._functions.describe(self._device, said)
            raise_for(status, f"{path.name}: describe")
        self.name = device_name(str(path)) if said.name == ffi.NULL else string_of(said.name)
        self.engine_version = "" if said.version == ffi.NULL else string_of(said.version)
        try:
            self._check_description(said)
        except (ValueError, NnburstError) as error:
            raise DeviceUnavailable(f"{path.name}: describe: {error}") from error

    def _check_description(self, said: nnbx_description) -> None:
        """Check and keep a library's description of itself; ValueError or an NnburstError if it is wrong."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}, expected {_NAME.pattern}")
        self.device_type = DeviceType(said.type)
        if self.device_type is DeviceType.UNKNOWN:
            raise ValueError("type is 0, expected OTHER, CPU, GPU or ACCELERATOR")
        self.feature_level = FeatureLevel(said.feature_level)
        if self.feature_level < FeatureLevel.V1_2:
            raise ValueError(f"feature_level is {said.feature_level}, expected at least 3")
        self._alignment = _bounded("alignment", said.alignment, _LARGEST_ALIGNMENT)
        if self._alignment.bit_count() != 1:
            raise ValueError(f"alignment is {self._alignment}, expected a power of two")
        self._padding = _bounded("padding", said.padding, _LARGEST_ALIGNMENT)
        self.cache_files = NumberOfCacheFiles(
            _bounded("program_files", said.program_files, 1),
            _bounded("constant_files", said.constant_files, said.program_files),
        )
        if self.cache_files.model_cache and self._functions.save == ffi.NULL:
            raise ValueError("program_files is 1, and save is NULL")
        self.capabilities = _capabilities(said)
        self._extensions = _extensions(said)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions whose types and operations it can all run."""
        return self._extensions

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation can be run, judged without constants in pools; see `supported_with`."""
        return self._supported(model, ())

    def supported_with(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        """Whether each operation of the main subgraph can be run; see `executor.base.ReadsConstants`."""
        return self._supported(model, pools)

    def _supported(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        count = len(model.main.operations)
        found = ffi.new("uint8_t[]", max(count, 1))
        handed = HandedModel(model, pools)
        raise_for(self._functions.supported(self._device, handed.model, found), "supported")
        return [bool(answer) for answer in found[0:count]]

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> CPrepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`."""
        handed = HandedModel(model, pools)
        how, _kept = new_preparation(options)
        made, message = ffi.new("nnbx_prepared **"), new_message()
        status = self._functions.prepare(self._device, handed.model, how, made, message)
        raise_for(status, "prepare", message)
        return self._own(made[0], model, options)

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> CPrepared:
        """Prepare what `CPrepared.to_cache` returned; see `nnburst.executor.base`."""
        how, _kept = new_preparation(options)
        saved = ffi.new("struct nnbx_cached *")
        saved.size = ffi.sizeof("struct nnbx_cached")
        program, constants = ffi.from_buffer(cached.program), ffi.from_buffer(cached.constants)
        saved.program, saved.program_bytes = program, len(cached.program)
        saved.constants, saved.constant_bytes = constants, len(cached.constants)
        made, message = ffi.new("nnbx_prepared **"), new_message()
        status = self._functions.prepare_from_cache(self._device, saved, how, made, message)
        raise_for(status, "prepare_from_cache", message)
        return self._own(made[0], cached.model, options)

    def _own(self, prepared: nnbx_prepared, model: Model, options: PrepareOptions) -> CPrepared:
        handle = ffi.gc(not_null(prepared, "prepare"), self._functions.destroy_prepared)
        return CPrepared(self, handle, model, max(options.num_threads, 1))

    def allocate(
        self,
        operand: Operand,
        dimensions: Sequence[int],
        size: int,
        uses: Sequence[MemoryUse],
    ) -> CMemory | None:
        """Allocate device memory; None if it has none. See `nnburst.executor.base.AllocatingExecutor`."""
        if self._functions.allocate == ffi.NULL:
            return None
        extents = ffi.new("uint32_t[]", [*dimensions, 0])
        roles = ffi.new("struct nnbx_role[]", max(len(uses), 1))
        kept: list[object] = []
        for use in uses:
            handle = use.prepared.find_handle() if isinstance(use.prepared, CPrepared) else None
            if handle is not None:  # a closed model has no use for memory
                role = roles[len(kept)]
                role.prepared, role.is_output, role.index = handle, use.is_output, use.index
                kept.append(handle)
        desc = ffi.new("struct nnbx_memory_desc *")
        desc.size = ffi.sizeof("struct nnbx_memory_desc")
        desc.type, desc.dimensions, desc.rank = operand.type, extents, len(dimensions)
        desc.bytes, desc.roles, desc.role_count = size, roles, len(kept)
        made, message = ffi.new("nnbx_memory **"), new_message()
        status = self._functions.allocate(self._device, desc, made, message)
        raise_for(status, "allocate", message)
        memory = ffi.gc(not_null(made[0], "allocate"), self._functions.destroy_memory)
        return CMemory(self._functions, memory, size, self)

    @property
    def functions(self) -> nnburst_executor:
        """The table of functions."""
        return self._functions

    @property
    def layout(self) -> tuple[int, int]:
        """Alignment and padding of arguments."""
        return self._alignment, self._padding


# -- prepared models -----------------------------------------------------------


class CPrepared(Prepared):
    """A model that an executor in C has prepared. It is destroyed with the last execution of it."""

    def __init__(
        self, executor: CExecutor, handle: nnbx_prepared, model: Model, num_threads: int = 1
    ) -> None:
        """Own `handle`, which destroys it when it is dropped.

        Args:
            executor: the executor that prepared the model.
            handle: a struct nnbx_prepared.
            model: the validated model.
            num_threads: the most threads that an execution uses.
        """
        self.num_threads = num_threads
        self._executor = executor
        self._handle: nnbx_prepared | None = handle
        self._model = model
        main = model.main
        outputs = [main.operands[index] for index in main.output_indexes]
        self._rules = ffi.new("struct nnb_output_rule[]", max(len(outputs), 1))
        for rule, output in zip(self._rules, outputs, strict=False):
            rule.element_bytes = element_bytes(output.type)
            rule.is_scalar = output.type in SCALARS

    @property
    def handle(self) -> nnbx_prepared:
        """The struct nnbx_prepared.

        Raises:
            GeneralFailure: the model is closed.
        """
        handle = self._handle
        if handle is None:
            raise GeneralFailure("the prepared model is closed")
        return handle

    def find_handle(self) -> nnbx_prepared | None:
        """The struct nnbx_prepared; None if the model is closed."""
        return self._handle

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> CExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        return self.bind_with(inputs, outputs, ())

    def bind_with(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        attributes: Sequence[ExtensionAttribute],
    ) -> CExecution:
        """As `bind`, with attributes of vendor extensions."""
        kept: list[object] = []
        alignment, padding = self._executor.layout
        behind = ffi.new("uint64_t[]", max(len(inputs) + len(outputs), 1))
        request = ffi.new("struct nnbx_request *")
        request.size = ffi.sizeof("struct nnbx_request")
        request.argument_size = ffi.sizeof("struct nnbx_argument")
        request.inputs, request.input_count = new_arguments(inputs, kept), len(inputs)
        request.outputs, request.output_count = new_arguments(outputs, kept), len(outputs)
        request.hints, request.hint_count = new_hints(attributes, kept), len(attributes)
        if padding:
            for at, argument in enumerate((*inputs, *outputs)):
                behind[at] = bytes_behind(argument)
        status, message = ffi.new("int32_t *"), new_message()
        hosted = lib.nnb_hosted_bind_unlocked(
            self._executor.functions,
            self.handle,
            request,
            self._rules,
            behind,
            alignment,
            padding,
            status,
            message,
        )
        if hosted == ffi.NULL:
            raise_for(status[0], "bind", message)
        return CExecution(
            (self._executor, self.handle, kept),
            ffi.gc(hosted, lib.nnb_hosted_free_unlocked),
        )

    def to_cache(self) -> Cached | None:
        """The files that the executor saves; None if it saves nothing."""
        if not self._executor.cache_files.model_cache:
            return None
        saved = ffi.new("struct nnb_saved *")
        functions = self._executor.functions
        try:
            status = lib.nnb_executor_save_unlocked(functions, self.handle, _MOST_SAVED, saved)
            raise_for(status, "save")
            program, constants = (
                ffi.buffer(saved.bytes[kind], saved.counts[kind])[:] if saved.counts[kind] else b""
                for kind in (0, 1)
            )
        finally:
            lib.nnb_saved_free(saved)
        return Cached(without_constants(self._model), program, constants)

    def close(self) -> None:
        """Release the model, which the executor destroys with the last execution of it."""
        self._handle = None


class CExecution(Execution):
    """A request bound by an executor in C. One thread runs it at a time.

    Attributes:
        native: the call by which the burst loop runs the request.
        copied_bytes: bytes that each run copies, because arguments lack the executor's alignment or padding.
    """

    def __init__(self, kept: object, hosted: Any) -> None:  # noqa: ANN401
        """Own `hosted`, a cffi struct nnb_hosted *, which is freed when it is dropped.

        Args:
            kept: objects that must outlive the execution: the model, and the arguments' memory.
            hosted: the bound execution.
        """
        self._kept = kept
        self._hosted = hosted
        address = int(ffi.cast("uintptr_t", hosted))
        self._native = NativeCall(_RUN, address, reports_shapes=True)
        self.copied_bytes = int(lib.nnb_hosted_copied_bytes(hosted))

    @property
    def native(self) -> NativeCall | None:
        """The call by which the burst loop runs the request; None without a loop in C."""
        return None if self._hosted is None else self._native

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once, without Python's lock; see `nnburst.executor.base.Execution`."""
        if self._hosted is None:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        return run_native(self._native, deadline_ns, loop_timeout_ns)

    def close(self) -> None:
        """Make the executor release the memory."""
        hosted, self._hosted = self._hosted, None
        if hosted is not None:
            ffi.release(hosted)
        self._kept = None


# -- descriptions --------------------------------------------------------------


def _capabilities(said: Any) -> Capabilities | None:  # noqa: ANN401 - a cffi struct
    """The speed that a library reports of itself; None if it reports none.

    Raises:
        ValueError: a number is not above 0 and finite, or a type is not known or repeats.
    """
    count = said.performance_count
    if said.performances == ffi.NULL or not count:
        return None
    table = {}
    for at in range(count):
        entry = said.performances[at]
        kind = OperandType(entry.type)
        if kind in table or kind is OperandType.SUBGRAPH:
            raise ValueError(f"performances: {kind.name} has two, or none of its own")
        table[kind] = _performance(kind.name, entry.performance)
    return Capabilities(
        _performance("relaxed_scalar", said.relaxed_scalar),
        _performance("relaxed_tensor", said.relaxed_tensor),
        tuple(OperandPerformance(kind, table[kind]) for kind in sorted(table)),
        _performance("if_performance", said.if_performance),
        _performance("while_performance", said.while_performance),
    )


def _performance(name: str, info: Any) -> PerformanceInfo:  # noqa: ANN401 - a cffi struct
    numbers = float(info.exec_time), float(info.power_usage)
    if not all(number > 0 and math.isfinite(number) for number in numbers):
        raise ValueError(f"{name}: {numbers[0]} and {numbers[1]}, expected both above 0 and finite")
    return PerformanceInfo(*numbers)


def _extensions(said: Any) -> tuple[Extension, ...]:  # noqa: ANN401 - a cffi struct
    found = []
    if said.extension_count and said.extensions == ffi.NULL:
        raise ValueError(f"extension_count is {said.extension_count}, and extensions is NULL")
    for at in range(said.extension_count):
        entry = said.extensions[at]
        if entry.name == ffi.NULL or (entry.type_count and entry.types == ffi.NULL):
            raise ValueError(f"extensions: the name or the types of number {at} are NULL")
        types = tuple(
            ExtensionOperandTypeInformation(
                int(entry.types[n].type),
                bool(entry.types[n].is_tensor),
                int(entry.types[n].byte_size),
            )
            for n in range(entry.type_count)
        )
        found.append(Extension(string_of(entry.name), types))
    validate_extensions(found)
    return tuple(found)


def _bounded(name: str, value: int, most: int) -> int:
    if value > most:
        raise ValueError(f"{name} is {value}, expected at most {most}")
    return int(value)
