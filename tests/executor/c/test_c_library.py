"""Results of an executor's library are checked; its arguments are as the header has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from nnburst import ModelBuilder, OperandType, OperationType
from nnburst.executor.base import MEASURED, Argument, Outcome, PrepareOptions, supported_with
from nnburst.executor.c_library import CExecution, CExecutor
from nnburst.hal.enums import DeviceType, ErrorStatus, FeatureLevel, OperandLifeTime
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import DataLocation, MemoryPool, Model, Operand
from nnburst.hal.types import NumberOfCacheFiles, OutputShape, PerformanceInfo

Build = Callable[..., Path]


def load(path: Path, options: Mapping[str, str] | None = None) -> CExecutor:
    return CExecutor.load(path, options or {})


def relu(dimensions: tuple[int, ...] = (4,), result: tuple[int, ...] | None = None) -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, dimensions)
    y = builder.output(OperandType.TENSOR_FLOAT32, dimensions if result is None else result)
    builder.operation(OperationType.RELU, [x], [y])
    return builder.build()


def bound(
    executor: CExecutor,
    *,
    model: Model | None = None,
    offset: int = 0,
    result: tuple[int, ...] = (4,),
    room: int = 4,
) -> tuple[CExecution, np.ndarray]:
    """An execution on [1, 2, 3, 4] at this offset of memory, and its output."""
    memory = np.zeros(8192, np.uint8)
    first = -memory.ctypes.data % 4096 + offset
    given = memory[first : first + 16].view(np.float32)
    given[:] = [1, 2, 3, 4]
    taken = memory[first + 1024 : first + 1024 + 4 * room]
    prepared = executor.prepare(model or relu(), ())
    inputs = [Argument(given.view(np.uint8), (4,))]
    return prepared.bind(inputs, [Argument(taken, result)]), taken.view(np.float32)


def run(executor: CExecutor, **how: object) -> Outcome:
    execution, _ = bound(executor, **how)  # type: ignore[arg-type]
    return execution.run()


# -- libraries -----------------------------------------------------------------


def test_library_without_a_description_is_called_after_its_file(build: Build) -> None:
    executor = load(build("my_npu"))
    assert (executor.name, executor.engine_version) == ("my_npu", "")
    assert executor.device_type is DeviceType.OTHER
    assert executor.feature_level is FeatureLevel.AIDL_V4
    assert executor.cache_files == NumberOfCacheFiles(0, 0)
    assert executor.capabilities is None
    assert executor.extensions == ()


def test_description_of_a_library_is_what_its_device_reports(build: Build) -> None:
    describe = (
        'description->name="npu-2"; description->version="7b";'
        "description->type=NNBX_DEVICE_ACCELERATOR; description->feature_level=4;"
        "static const struct nnbx_operand_performance fast[]={{5,{0.5f,0.25f}},{3,{0.75f,2}}};"
        "description->performances=fast; description->performance_count=2;"
        "description->relaxed_tensor.exec_time=0.125f;"
        "static const struct nnbx_extension_type types[]={{1,1,8}};"
        'static const struct nnbx_extension all[]={{"com.example.npu",types,1}};'
        "description->extensions=all; description->extension_count=1"
    )
    executor = load(build(DESCRIBE=describe))
    assert (executor.name, executor.engine_version) == ("npu-2", "7b")
    assert executor.device_type is DeviceType.ACCELERATOR
    assert executor.feature_level is FeatureLevel.V1_3
    reported = executor.capabilities
    assert reported is not None
    assert [(p.type, p.info) for p in reported.operand_performance] == [
        (OperandType.TENSOR_FLOAT32, PerformanceInfo(0.75, 2)),
        (OperandType.TENSOR_QUANT8_ASYMM, PerformanceInfo(0.5, 0.25)),
    ]
    assert reported.relaxed_float32_to_float16_performance_tensor.exec_time == 0.125
    (extension,) = executor.extensions
    assert extension.name == "com.example.npu"
    assert [(t.type, t.is_tensor, t.byte_size) for t in extension.operand_types] == [(1, True, 8)]


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        ('description->name="../etc"', r"name is '\.\./etc'"),
        ('description->name=""', "name is ''"),
        ("description->type=0", "type is 0"),
        ("description->type=9", "9 is not a valid DeviceType"),
        ("description->feature_level=2", "feature_level is 2, expected at least 3"),
        ("description->feature_level=99", "99 is not a valid FeatureLevel"),
        ("description->alignment=48", "alignment is 48, expected a power of two"),
        ("description->alignment=0", "alignment is 0, expected a power of two"),
        ("description->alignment=8192", "alignment is 8192, expected at most 4096"),
        ("description->padding=4097", "padding is 4097, expected at most 4096"),
        ("description->program_files=2", "program_files is 2, expected at most 1"),
        ("description->program_files=1", "save is NULL"),
        ("description->constant_files=1", "constant_files is 1, expected at most 0"),
        (
            "static const struct nnbx_operand_performance p[]={{3,{0,1}}};"
            "description->performances=p;description->performance_count=1",
            r"TENSOR_FLOAT32: 0\.0 and 1\.0, expected both above 0",
        ),
        (
            "static const struct nnbx_operand_performance p[]={{3,{1,1}},{3,{1,1}}};"
            "description->performances=p;description->performance_count=2",
            "performances: TENSOR_FLOAT32",
        ),
        (
            'static const struct nnbx_extension e[]={{"no dot",0,0}};'
            "description->extensions=e;description->extension_count=1",
            "'no dot'",
        ),
        ("description->extension_count=2", "extension_count is 2, and extensions is NULL"),
        (
            "static const struct nnbx_extension e[]={{0,0,0}};"
            "description->extensions=e;description->extension_count=1",
            "extensions: the name or the types of number 0 are NULL",
        ),
        (
            'static const struct nnbx_extension e[]={{"com.example.npu",0,3}};'
            "description->extensions=e;description->extension_count=1",
            "extensions: the name or the types of number 0 are NULL",
        ),
        ("return 77", "describe: status 77 does not exist"),
    ],
)
def test_library_that_describes_itself_wrongly_is_refused(
    build: Build, describe: str, message: str
) -> None:
    with pytest.raises((DeviceUnavailable, GeneralFailure), match=message):
        load(build(DESCRIBE=describe))


@pytest.mark.parametrize(
    ("macros", "message"),
    [
        ({"ABI": "2"}, "it has ABI 2 of executors, this nnburst has 1"),
        ({"SIZE": "16"}, "one of supported, prepare"),
        ({"WITHOUT_RUN": "1"}, "one of supported, prepare"),
        ({"WITHOUT_SYMBOL": "1"}, "it does not export nnburst_get_executor"),
        ({"OPEN_STATUS": "NNBX_DEVICE_UNAVAILABLE"}, "open: as the test wants"),
    ],
)
def test_library_that_is_no_executor_of_this_abi_is_refused(
    build: Build, macros: dict[str, str], message: str
) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        load(build(**macros))


def test_table_of_an_earlier_header_is_one_without_the_functions_that_came_later(
    build: Build,
) -> None:
    until_memory = "offsetof(struct nnburst_executor, allocate)"
    executor = load(build(SIZE=until_memory))
    assert executor.allocate(relu().main.operands[0], (4,), 16, ()) is None
    assert run(executor).status is ErrorStatus.NONE


def test_file_that_is_no_library_is_refused_with_the_linkers_reason(tmp_path: Path) -> None:
    (tmp_path / "libtext.so").write_text("\x7fELF and nothing more")
    with pytest.raises(DeviceUnavailable, match=r"libtext\.so"):
        load(tmp_path / "libtext.so")


def test_paths_and_options_are_bytes_of_any_encoding(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"ger\xe4te")
    folder.mkdir()
    library = shutil.copy(build(), folder / "libnpu.so")
    loads = (
        "import sys; from nnburst.executor.c_library import CExecutor; from pathlib import Path;"
        "library, folder = sys.argv[1:];"
        "print(ascii(CExecutor.load(Path(library), {'firmware': folder}).engine_version))"
    )
    # A process of its own: the name stays in /proc/self/maps, which other tests read.
    done = subprocess.run(
        [sys.executable, "-c", loads, library, folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ascii("firmware" + os.fsencode(folder).decode(errors="replace"))


def test_options_reach_the_library(build: Build) -> None:
    assert load(build(), {"memory": "64", "node": "/dev/npu0"}).engine_version == (
        "memory64node/dev/npu0"
    )


# -- models --------------------------------------------------------------------


def test_constants_in_pools_are_read_where_they_are(build: Build) -> None:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (4,))
    weights = builder.operand(
        Operand(
            OperandType.TENSOR_FLOAT32,
            (4,),
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(0, 16, 16),
        )
    )
    y = builder.output(OperandType.TENSOR_FLOAT32, (4,))
    builder.operation(OperationType.ADD, [x, weights, builder.scalar(0)], [y])
    model, executor = builder.build(pools=[MemoryPool(32)]), load(build())
    pool = np.zeros(8, np.float32)
    assert supported_with(executor, model, [pool.view(np.uint8)]) == [False]
    pool[4] = 1
    assert supported_with(executor, model, [pool.view(np.uint8)]) == [True]
    assert executor.supported(model) == [False]  # not seen, so in doubt


def test_preparation_comes_with_all_that_its_client_has_said(build: Build) -> None:
    says = (
        "snprintf(message, NNBX_MESSAGE_BYTES, "
        r"\"%d %d %u %llu %s %d %.*s\", how->preference, how->priority, how->threads,"
        "(unsigned long long)how->deadline_ns, how->hints[0].extension, how->hints[0].code,"
        "(int)how->hints[0].value_bytes, (const char *)how->hints[0].value)"
    ).replace(r"\"", '"')
    executor = load(build(ON_PREPARE=says, PREPARE_STATUS="NNBX_RESOURCE_EXHAUSTED_TRANSIENT"))
    hint = ExtensionAttribute("com.example.npu", 5, b"fast")
    options = PrepareOptions(num_threads=3, attributes=(hint,), deadline_ns=12345)
    with pytest.raises(ResourceExhausted, match=r"prepare: 1 1 3 12345 com\.example\.npu 5 fast"):
        executor.prepare(relu(), (), options)


def test_success_without_a_model_or_an_execution_is_a_failure(build: Build) -> None:
    with pytest.raises(GeneralFailure, match="prepare returned NNBX_NONE and nothing"):
        load(build("none", ON_PREPARE="*prepared = NULL; return NNBX_NONE")).prepare(relu(), ())


# -- arguments -----------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 4, 64])
@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_arguments_that_are_not_aligned_are_copied_and_no_others(
    build: Build, alignment: int, offset: int
) -> None:
    executor = load(
        build(
            DESCRIBE=f"description->alignment={alignment}",
            REPORT=f"if (execution->alignment < {alignment}) return NNBX_GENERAL_FAILURE",
        )
    )
    execution, output = bound(executor, offset=offset)
    assert execution.run().status is ErrorStatus.NONE
    assert output.tolist() == [2, 4, 6, 8]
    aligned = [(place + offset) % alignment == 0 for place in (0, 1024)]
    assert execution.copied_bytes == 16 * aligned.count(False)


def test_arguments_with_too_little_behind_them_are_copied(build: Build) -> None:
    executor = load(build(DESCRIBE="description->alignment=1; description->padding=64"))
    prepared = executor.prepare(relu(), ())
    memory = memoryview(bytearray(16 + 64 + 16))
    memory[:16] = np.array([1, 2, 3, 4], np.float32).tobytes()
    execution = prepared.bind([Argument(memory[:16], (4,))], [Argument(memory[80:], (4,))])
    assert execution.run().status is ErrorStatus.NONE
    assert np.frombuffer(memory[80:], np.float32).tolist() == [2, 4, 6, 8]
    # The input has 80 bytes of its memory behind it, the output none.
    assert execution.copied_bytes == 16


def test_failed_run_leaves_outputs_that_are_copied_as_they_were(build: Build) -> None:
    executor = load(build(RUN_STATUS="NNBX_GENERAL_FAILURE"))
    execution, output = bound(executor, offset=4)
    assert execution.run().status is ErrorStatus.GENERAL_FAILURE
    assert output.tolist() == [0, 0, 0, 0]


def test_refused_binding_gives_the_librarys_reason(build: Build) -> None:
    executor = load(build(BIND_STATUS="NNBX_INVALID_ARGUMENT"))
    with pytest.raises(InvalidArgument, match="bind: bound as the test wants"):
        bound(executor)


def test_insufficient_size_is_no_status_of_a_call_that_has_no_shapes(build: Build) -> None:
    size = "NNBX_OUTPUT_INSUFFICIENT_SIZE"
    with pytest.raises(GeneralFailure, match="open: status 3 is for runs alone"):
        load(build("opened", OPEN_STATUS=size))
    with pytest.raises(GeneralFailure, match="prepare: status 3 is for runs alone"):
        bound(load(build("prepared", PREPARE_STATUS=size)))
    with pytest.raises(GeneralFailure, match="bind: bound as the test wants"):
        bound(load(build("binding", BIND_STATUS=size)))


def test_closed_execution_is_not_run(build: Build) -> None:
    execution, output = bound(load(build()))
    execution.close()
    execution.close()
    assert execution.run().status is ErrorStatus.INVALID_ARGUMENT
    assert execution.native is None
    assert output.tolist() == [0, 0, 0, 0]


def test_model_outlives_its_close_as_long_as_an_execution_needs_it(build: Build) -> None:
    prepared = load(build()).prepare(relu(), ())
    memory = np.ones(8, np.float32)
    execution = prepared.bind(
        [Argument(memory[:4].view(np.uint8), (4,))], [Argument(memory[4:].view(np.uint8), (4,))]
    )
    prepared.close()
    assert execution.run().status is ErrorStatus.NONE
    with pytest.raises(GeneralFailure, match="closed"):
        prepared.bind([], [])


# -- outcomes ------------------------------------------------------------------

SHAPE = "outcome->shapes[0]=(struct nnbx_output_shape)"


@pytest.mark.parametrize("status", ["77", "-1", "10000", "9"])
def test_status_that_does_not_exist_is_a_general_failure(build: Build, status: str) -> None:
    outcome = run(load(build(RUN_STATUS=status)))
    assert outcome.status is ErrorStatus.GENERAL_FAILURE
    assert outcome.message == f"the executor returned status {status}, which does not exist"


@pytest.mark.parametrize("status", [s for s in ErrorStatus if 0 < s < 9 and s != 3])
def test_failures_come_without_shapes_and_with_their_message(
    build: Build, status: ErrorStatus
) -> None:
    report = f'{SHAPE}{{1,1,{{4}}}};outcome->shape_count=1;strcpy(outcome->message,"no power")'
    outcome = run(load(build(RUN_STATUS=str(int(status)), REPORT=report)))
    assert (outcome.status, outcome.output_shapes, outcome.message) == (status, (), "no power")


@pytest.mark.parametrize(
    ("shape", "is_possible"),
    [
        ("{1,1,{4}}", True),
        ("{1,1,{3}}", True),  # the model leaves it open
        ("{1,1,{5}}", False),  # and the memory ends after 4
        ("{1,0,{4}}", False),  # success is that all fit
        ("{1,7,{4}}", False),
        ("{2,1,{2,2}}", False),
        ("{0,1,{0}}", False),
        ("{17,1,{1}}", False),
        ("{1,1,{4294967295u}}", False),
    ],
)
def test_shape_that_an_output_cannot_have_is_a_general_failure(
    build: Build, shape: str, is_possible: bool
) -> None:
    executor = load(build(REPORT=f"{SHAPE}{shape};outcome->shape_count=1"))
    outcome = run(executor, model=relu((4,), (0,)), result=(0,))
    if is_possible:
        assert outcome.status is ErrorStatus.NONE
        (found,) = outcome.output_shapes
        assert found == OutputShape((int(shape[6]),), is_sufficient=True)
    else:
        assert outcome.status is ErrorStatus.GENERAL_FAILURE
        assert "shape" in outcome.message


def test_open_shape_that_is_not_reported_is_a_general_failure(build: Build) -> None:
    outcome = run(load(build()), model=relu((4,), (0,)), result=(0,))
    assert outcome.status is ErrorStatus.GENERAL_FAILURE
    assert outcome.message == "the executor returned status 0 without the shapes of outputs"


def test_number_of_shapes_that_is_not_the_outputs_is_a_general_failure(build: Build) -> None:
    outcome = run(load(build(REPORT="outcome->shape_count=4000000000u")))
    assert outcome.status is ErrorStatus.GENERAL_FAILURE


def test_output_that_does_not_fit_comes_with_its_shape(build: Build) -> None:
    executor = load(
        build(
            REPORT=f"{SHAPE}{{1,0,{{9}}}};outcome->shape_count=1",
            RUN_STATUS="NNBX_OUTPUT_INSUFFICIENT_SIZE",
        )
    )
    outcome = run(executor, model=relu((4,), (0,)), result=(0,))
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert outcome.output_shapes == (OutputShape((9,), is_sufficient=False),)


def test_insufficient_size_of_outputs_that_all_fit_is_a_general_failure(build: Build) -> None:
    report = f"{SHAPE}{{1,1,{{4}}}};outcome->shape_count=1"
    status = "NNBX_OUTPUT_INSUFFICIENT_SIZE"
    outcome = run(load(build(REPORT=report, RUN_STATUS=status)))
    assert outcome.status is ErrorStatus.GENERAL_FAILURE


def test_pointer_that_a_library_overwrites_is_not_followed(build: Build) -> None:
    report = "outcome->shapes=(struct nnbx_output_shape *)8;outcome->shape_count=1"
    assert run(load(build(REPORT=report))).status is ErrorStatus.GENERAL_FAILURE


def test_message_that_a_library_puts_elsewhere_is_not_written_to(build: Build) -> None:
    report = 'outcome->message=(char *)"too hot"'
    outcome = run(load(build(REPORT=report, RUN_STATUS="2")))
    assert (outcome.status, outcome.message) == (ErrorStatus.GENERAL_FAILURE, "")


def test_message_without_an_end_is_cut(build: Build) -> None:
    report = "memset(outcome->message, 'x', NNBX_MESSAGE_BYTES)"
    outcome = run(load(build(REPORT=report, RUN_STATUS="2")))
    assert outcome.message == "x" * 1023


@pytest.mark.parametrize(
    ("report", "times"),
    [
        ("", (NO_TIMING, MEASURED)),
        ("outcome->device_ns=7;outcome->driver_ns=9", (7, 9)),
        ("outcome->device_ns=NNBX_MEASURED", (MEASURED, MEASURED)),
        ("outcome->driver_ns=NNBX_NOT_AVAILABLE", (NO_TIMING, NO_TIMING)),
    ],
)
def test_times_are_the_librarys_own(build: Build, report: str, times: tuple[int, int]) -> None:
    outcome = run(load(build(REPORT=report or "(void)0")))
    assert (outcome.device_ns, outcome.driver_ns) == times
