"""Memory and MemoryDesc: roles, states, copies, descriptors from outside (RTT:V28, V29, V39 to V45)."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from nnburst.fmq.shared_memory import SIZE_SEALS
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.runtime import Compilation, Manager, Memory, MemoryDesc, OperandDescription
from runtime.building import (
    Built,
    add_model,
    bad_data,
    bad_state,
    finished,
    floats,
    op_failed,
    unexpected_null,
)


@pytest.fixture
def compilation() -> Compilation:
    return finished(add_model(2))


def described(compilation: Compilation, *dimensions: int) -> Memory:
    """Memory for input 0 and output 0."""
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.add_output_role(compilation, 0, 0.5)
    if dimensions:
        desc.set_dimensions(dimensions)
    desc.finish()
    return desc.create_memory()


def test_roles_are_of_finished_compilations_and_given_once(compilation: Compilation) -> None:
    desc = MemoryDesc()
    with unexpected_null():
        desc.add_input_role(None, 0, 1.0)  # type: ignore[arg-type]
    with bad_data():
        desc.add_input_role(Compilation(add_model(2), manager=Manager([])), 0, 1.0)
    for index, frequency in ((999, 1.0), (-1, 1.0), (0, 10.0), (0, 0.0), (0, -1.0), (0, np.nan)):
        with bad_data():
            desc.add_output_role(compilation, index, frequency)
    with bad_data():
        desc.finish()
    desc.add_input_role(compilation, 0, 1.0)
    with bad_data():
        desc.add_input_role(compilation, 0, 1.0)
    with bad_state():
        desc.create_memory()
    desc.finish()
    for late in (
        lambda: desc.add_input_role(compilation, 1, 1.0),
        lambda: desc.set_dimensions([2]),
        desc.finish,
    ):
        with bad_state():
            late()


def test_dimensions_of_roles_and_settings_combine() -> None:
    compilation = finished(add_model(0, 3, out=(0, 3)))
    desc = MemoryDesc()
    desc.set_dimensions([])
    with unexpected_null():
        desc.set_dimensions(None)
    desc.add_input_role(compilation, 0, 1.0)
    for wrong in ([2], [2, 4], [2, 3, 1]):
        with bad_data():
            desc.set_dimensions(wrong)
    desc.set_dimensions([2, 0])
    assert desc.dimensions == (2, 3)


def test_scalar_roles_have_no_dimensions() -> None:
    built = Built()
    from nnburst.hal.enums import OperandType, OperationType
    from runtime.building import scalar

    a, b = built.tensor(2), built.tensor(2)
    activation = built.model.add_operand(scalar(OperandType.INT32))
    c = built.tensor(2)
    built.model.add_operation(OperationType.ADD, [a, b, activation], [c])
    compilation = finished(built.finish([a, b, activation], [c]))
    desc = MemoryDesc()
    desc.set_dimensions([1])
    with bad_data():
        desc.add_input_role(compilation, 2, 1.0)
    desc = MemoryDesc()
    desc.add_input_role(compilation, 2, 1.0)
    desc.set_dimensions([])
    with bad_data():
        desc.set_dimensions([1])
    desc.finish()
    assert desc.create_memory().size == 4


def test_described_memory_is_used_whole_and_in_its_roles(compilation: Compilation) -> None:
    memory = described(compilation)
    execution = compilation.execution()
    for offset, length in ((0, 8), (4, 0), (4, 4)):
        with bad_data():
            execution.set_input_from_memory(0, memory, offset, length)
    with bad_data():
        execution.set_input_from_memory(1, memory)
    with bad_data():
        finished(add_model(2)).execution().set_input_from_memory(0, memory)
    built = Built()
    with bad_data():
        built.model.set_operand_value_from_memory(built.tensor(2), memory, 0, 8)


def test_an_output_initialises_memory_and_a_failure_takes_that_back() -> None:
    compilation = finished(add_model(0, out=(0,)))
    memory = described(compilation, 2)
    x = np.ones(2, np.float32)

    def run(target: bool, size: int) -> None:
        execution = compilation.execution()
        if target:
            execution.set_input(0, np.ones(size, np.float32), floats(size))
            execution.set_output_from_memory(0, memory)
        else:
            execution.set_input_from_memory(0, memory, type=floats(2))
            execution.set_output(0, np.zeros(2, np.float32), floats(2))
        execution.set_input(1, np.ones(size, np.float32), floats(size))
        execution.compute()

    with op_failed():
        run(False, 2)
    run(True, 2)
    assert memory.is_initialized
    run(False, 2)
    with pytest.raises(NnburstError):
        run(True, 5)
    assert not memory.is_initialized
    with bad_data():
        Memory.copy(memory, Memory.allocate(8))
    Memory.copy(Memory.allocate(8), memory)
    assert memory.is_initialized
    assert x.size == 2


def test_a_type_that_contradicts_the_descriptor_is_refused() -> None:
    compilation = finished(add_model(0, out=(0,)))
    memory = described(compilation, 2)
    execution = compilation.execution()
    for call in (execution.set_input_from_memory, execution.set_output_from_memory):
        with bad_data():
            call(0, memory, type=floats(3))


def test_copies_between_all_kinds_keep_the_bytes(compilation: Compilation, tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        staged = Memory.from_fd(8, file.fileno())
    shared, device, last = Memory.allocate(8), described(compilation), Memory.allocate(8)
    shared.bytes[...] = range(8)
    for src, dst in ((shared, device), (device, staged), (staged, last)):
        Memory.copy(src, dst)
    assert last.bytes.tolist() == list(range(8)) == list(path.read_bytes())
    Memory.copy(last, last)


def test_copies_need_equal_sizes_and_contents(compilation: Compilation) -> None:
    small, large = Memory.allocate(8), Memory.allocate(24)
    for src, dst in ((small, large), (large, small), (large, described(compilation))):
        with bad_data():
            Memory.copy(src, dst)
    with bad_data():
        Memory.copy(described(compilation), small)
    with unexpected_null():
        Memory.copy(small, None)  # type: ignore[arg-type]
    other = described(finished(add_model(4)))
    Memory.copy(Memory.allocate(16), other)
    with bad_data():
        Memory.copy(other, described(compilation))


def test_a_copy_that_is_refused_leaves_its_destination_without_contents(
    compilation: Compilation,
) -> None:
    good, device = Memory.allocate(8), described(compilation)
    for refused in (Memory.allocate(24), described(compilation)):
        Memory.copy(good, device)
        assert device.is_initialized
        with bad_data():
            Memory.copy(refused, device)
        assert not device.is_initialized


def dequantized(*scales: float) -> Compilation:
    """Of a per-channel input with these scales."""
    built = Built()
    x = built.model.add_operand(
        OperandDescription(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, (len(scales), 4))
    )
    built.model.set_operand_per_channel(x, scales, 0)
    y = built.tensor(len(scales), 4)
    built.model.add_operation(OperationType.DEQUANTIZE, [x], [y])
    return finished(built.finish([x], [y]))


def test_roles_have_the_same_scales_of_channels() -> None:
    desc = MemoryDesc()
    desc.add_input_role(dequantized(1.0, 2.0), 0, 1.0)
    with bad_data():
        desc.add_input_role(dequantized(1.0, 3.0), 0, 1.0)
    desc.add_input_role(dequantized(1.0, 2.0), 0, 1.0)


def test_an_unknown_size_is_not_allocated() -> None:
    compilation = finished(add_model(0, out=(0,)))
    with op_failed():
        described(compilation)


def memfd(size: int, seals: int = 0) -> int:
    fd = os.memfd_create("theirs", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_a_sealed_memfd_is_shared_as_it_is() -> None:
    fd = memfd(4096, SIZE_SEALS)
    with mmap.mmap(fd, 4096) as theirs:
        memory = Memory.from_fd(4096, fd)
        os.close(fd)
        assert memory.is_shared
        theirs[:4] = b"here"
        assert bytes(memory.bytes[:4]) == b"here"


def test_a_memfd_is_sealed_only_if_it_is_asked_for() -> None:
    fd = memfd(4096)
    assert not Memory.from_fd(4096, fd).is_shared
    assert not fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    assert Memory.from_fd(4096, fd, seal=True).is_shared
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == SIZE_SEALS
    os.close(fd)


@pytest.mark.parametrize("what", ["offset", "prot", "short", "no seals taken"])
def test_everything_else_is_staged(what: str) -> None:
    fd = memfd(8192, fcntl.F_SEAL_SEAL if what == "no seals taken" else SIZE_SEALS)
    size = 8192 + 1 if what == "short" else 4096
    memory = Memory.from_fd(
        size,
        fd,
        prot=mmap.PROT_READ if what == "prot" else mmap.PROT_READ | mmap.PROT_WRITE,
        offset=4096 if what == "offset" else 0,
        seal=True,
    )
    os.close(fd)
    assert not memory.is_shared
    assert memory.read(0, 16).tolist() == [0] * 16
    with pytest.raises(Exception, match="not mapped"):
        memory.bytes  # noqa: B018


@pytest.mark.parametrize(
    ("size", "fd", "prot", "offset"),
    [
        (0, 0, 3, 0),
        (8, -1, 3, 0),
        (8, 0, 4, 0),
        (8, 0, 3, -1),
        (8, 0, 3, 2**63 - 8),
        (2**63 - 8, 0, 3, 8),
        (2**64 - 1, 0, 3, 0),
    ],
)
def test_descriptors_that_make_no_sense_are_refused(
    size: int, fd: int, prot: int, offset: int
) -> None:
    with bad_data():
        Memory.from_fd(size, fd, prot=prot, offset=offset)


def test_a_descriptor_that_is_not_open_fails() -> None:
    with op_failed():
        Memory.from_fd(8, 999999)
