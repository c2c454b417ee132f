"""The calls that Android's CTS never makes: those of extensions, and of hardware buffers."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capi.conftest import Compile, Run
from capi.interface import Addition, CInterface
from capi.programs import ADD, HEAD
from nnburst.hal.enums import ResultCode

FIBONACCI = Path(__file__).resolve().parents[2] / "examples" / "fibonacci"

CALLS = (
    "#include <android/NeuralNetworksExtensions.h>"
    + HEAD
    + ADD
    + r"""
int main(void) {
    const char *none = "com.example.none";
    ANeuralNetworksDevice *device = NULL;
    ANeuralNetworksModel *model = NULL;
    bool supported = true;
    int32_t type = 7;
    uint32_t count = 0;

    CHECK(ANeuralNetworks_getDeviceCount(&count));
    CHECK(ANeuralNetworks_getDevice(count - 1, &device));
    CHECK(ANeuralNetworksDevice_getExtensionSupport(device, none, &supported));
    printf("supported %d\n", supported);

    CHECK(ANeuralNetworksModel_create(&model));
    printf("operand type %d\n", ANeuralNetworksModel_getExtensionOperandType(model, none, 1, &type));
    printf("operation type %d\n", ANeuralNetworksModel_getExtensionOperationType(model, none, 1, &type));
    printf("untouched %d\n", type);

    /* RT:X7: data only on operands of an extension's type; null and 0 too. */
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0.0f, 0};
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar));
    printf("data %d\n", ANeuralNetworksModel_setOperandExtensionData(model, 0, none, 4));
    printf("no data %d\n", ANeuralNetworksModel_setOperandExtensionData(model, 0, NULL, 0));
    printf("null data %d\n", ANeuralNetworksModel_setOperandExtensionData(model, 0, NULL, 4));
    const ANeuralNetworksOperandType unknown = {0x10001, 0, NULL, 0.0f, 0};
    printf("operand of an unknown prefix %d\n", ANeuralNetworksModel_addOperand(model, &unknown));
    const uint32_t zero[] = {0};
    printf("operation of one %d\n", ANeuralNetworksModel_addOperation(model, 0x10001, 1, zero, 1, zero));

    /* RT:X8: attributes need one explicit device, and one that takes them. */
    const ANeuralNetworksDevice *devices[] = {device};
    ANeuralNetworksCompilation *compilation = NULL;
    ANeuralNetworksModel *add = add_model();
    CHECK(ANeuralNetworksCompilation_createForDevices(add, devices, 1, &compilation));
    printf("attribute %d\n", ANeuralNetworksCompilation_addExtensionAttribute(compilation, none, 1, none, 4));
    printf("null attribute %d\n",
           ANeuralNetworksCompilation_addExtensionAttribute(compilation, none, 1, NULL, 4));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    ANeuralNetworksExecution *execution = ready(compilation, false);
    printf("attribute %d\n", ANeuralNetworksExecution_addExtensionAttribute(execution, none, 1, none, 4));

    ANeuralNetworksMemory *memory = (void *)1;
    printf("buffer %d\n", ANeuralNetworksMemory_createFromAHardwareBuffer((void *)&count, &memory));
    int code = ANeuralNetworksMemory_createFromAHardwareBuffer(NULL, &memory);
    printf("no buffer %d %d\n", code, memory == NULL);
    return 0;
}
"""
)

EXPECTED = """\
supported 0
operand type 4
operation type 4
untouched 7
data 4
no data 4
null data 3
operand of an unknown prefix 4
operation of one 4
attribute 4
null attribute 3
attribute 4
buffer 4
no buffer 3 1
"""


def test_calls_of_extensions_and_hardware_buffers_answer_as_the_interface_has_it(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(CALLS))
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXPECTED
    assert done.stderr == ""


@pytest.mark.campaign
def test_the_example_computes_fibonacci_numbers_by_an_extension_of_a_service(
    compile_program: Compile, run_compiled: Run, tmp_path: Path
) -> None:
    if not FIBONACCI.is_dir():
        pytest.skip("the examples are not part of what is installed")
    folder = {"XDG_RUNTIME_DIR": str(tmp_path)}
    program = compile_program((FIBONACCI / "main.c").read_text())
    command = [sys.executable, "-m", "nnburst", "serve", "fibonacci", "--until-stdin-ends"]
    command += ["--executor", "reference", "--extension", "nnburst_fibonacci:FIBONACCI"]
    environment = {**os.environ, **folder, "PYTHONPATH": str(FIBONACCI)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as service:
        assert service.stdout is not None
        assert "listens" in service.stdout.readline()
        done = run_compiled(program, NNBURST_CPUONLY="0", NNBURST_DEVICES="", **folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1 1 2 3 5 8 13 21 34 55 \n"
    done = run_compiled(program, **folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no device has the extension com.example.fibonacci\n"


def test_the_value_of_an_attribute_is_not_read_if_it_is_refused(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    beyond = ctypes.c_size_t(1 << 50)
    args = b"no.such.extension", ctypes.c_uint16(1), ctypes.byref(ctypes.c_uint32()), beyond
    code = c.code("Execution_addExtensionAttribute", addition.execution, *args)
    assert code == ResultCode.BAD_DATA
    addition.close()
