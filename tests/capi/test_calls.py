"""The library refuses calls by itself, before anything of Python is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from capi.conftest import Compile, Run
from nnburst.capi.functions import FUNCTIONS, Argument, Function
from nnburst.hal.enums import ResultCode

HEAD = "#include <android/NeuralNetworksExtensions.h>\n#include <stdio.h>\n#include <string.h>\n"
#: What stands for an argument that is not null: room that no call looks at before it refuses the null.
SOMETHING = "static uint64_t something[64] = {0};\n"


def value(argument: Argument, null: str) -> str:
    """C for an argument; null for the one of that name, and a count of 1."""
    if argument.name == null:
        return "NULL"
    return f"({argument.ctype})(void *)something" if "*" in argument.ctype else "1"


def calls_with_null() -> Iterator[tuple[Function, str, str]]:
    """Each function with each pointer that must not be null."""
    for function in FUNCTIONS:
        for argument in function.arguments:
            if argument.required or argument.count:
                values = ", ".join(value(other, argument.name) for other in function.arguments)
                yield function, argument.name, f"{function.name}({values})"


def test_null_is_refused_for_each_pointer_of_each_function_without_an_interpreter(
    compile_program: Compile, run_compiled: Run
) -> None:
    lines = [HEAD, SOMETHING, "int main(void) {"]
    expected = []
    for function, name, call in calls_with_null():
        if function.is_free:
            lines.append(f"    {call};")
        else:
            expected.append(f"{function.name} {name} {int(ResultCode.UNEXPECTED_NULL)}")
            lines.append(f'    printf("{function.name} {name} %d\\n", {call});')
    program = compile_program("\n".join([*lines, "    return 0;\n}\n"]), "-Wno-cast-qual")
    done = run_compiled(program, NNBURST_PYTHON="/nonexistent")
    assert done.returncode == 0
    assert done.stdout.splitlines() == expected
    assert len(expected) > 100
    assert done.stderr == "", "nothing was started"


STARTS_NOTHING = (
    HEAD
    + r"""
int main(void) {
    printf("%llu\n", (unsigned long long)ANeuralNetworks_getDefaultLoopTimeout());
    printf("%llu\n", (unsigned long long)ANeuralNetworks_getMaximumLoopTimeout());
    printf("%lld\n", (long long)ANeuralNetworks_getRuntimeFeatureLevel());
    ANeuralNetworksMemory *memory = (void *)1;
    printf("%d\n", ANeuralNetworksMemory_createFromAHardwareBuffer((AHardwareBuffer *)&memory, &memory));
    printf("%d\n", memory == NULL);
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "libpython")) {
            printf("python\n");
        }
    }
    fclose(maps);
    return 0;
}
"""
)


def test_functions_that_need_no_device_start_nothing(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(STARTS_NOTHING))
    assert done.stdout.split() == ["2000000000", "15000000000", "1000008", "4", "1"]
    assert done.stderr == ""


NO_PYTHON = (
    HEAD
    + r"""
int main(void) {
    uint32_t count = 7;
    ANeuralNetworksModel *model = (void *)1;
    printf("%d %u\n", ANeuralNetworks_getDeviceCount(&count), count);
    printf("%d ", ANeuralNetworksModel_create(&model));
    printf("%d\n", model == NULL);
    return 0;
}
"""
)


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("/nonexistent", "NNBURST_PYTHON names no Python interpreter: /nonexistent"),
        ("/etc", "NNBURST_PYTHON names no Python interpreter: /etc"),
        ("/bin/sh", "NNBURST_PYTHON: cannot see which version of Python /bin/sh is"),
    ],
)
def test_without_an_interpreter_each_call_fails_and_one_line_gives_the_reason(
    compile_program: Compile, run_compiled: Run, python: str, said: str
) -> None:
    done = run_compiled(compile_program(NO_PYTHON), NNBURST_PYTHON=python)
    assert done.returncode == 0
    code = int(ResultCode.UNAVAILABLE_DEVICE)
    assert done.stdout.splitlines() == [f"{code} 7", f"{code} 1"]
    assert done.stderr == f"nnburst: {said}\n"


def test_python_without_its_library_is_refused_with_the_package_that_has_it(
    compile_program: Compile, run_compiled: Run, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to("/bin/sh")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path}/bin\nversion = 3.99.1\n")
    done = run_compiled(compile_program(NO_PYTHON), NNBURST_PYTHON=str(tmp_path))
    assert done.returncode == 0
    assert f"there is no libpython3.99.so.1.0 for {python}" in done.stderr
    assert "install the package libpython3.99 (Debian, Ubuntu)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


LISTS = (
    HEAD
    + r"""
int main(void) {
    const uint32_t extents[] = {4}, none[] = {0}, one[] = {0}, two[] = {1};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, extents, 0.0f, 0};
    ANeuralNetworksModel *model = NULL;
    (void)ANeuralNetworksModel_create(&model);
    (void)ANeuralNetworksModel_addOperand(model, &tensor);
    (void)ANeuralNetworksModel_addOperand(model, &tensor);
    printf("%d ", ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FLOOR, 0, none, 1, two));
    printf("%d ", ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FLOOR, 1, one, 0, none));
    printf("%d ", ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FLOOR, 0, NULL, 1, two));
    printf("%d ", ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FLOOR, 1, one, 0, NULL));
    printf("%d ", ANeuralNetworksModel_identifyInputsAndOutputs(model, 0, NULL, 1, two));
    printf("%d\n", ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, one, 0, NULL));
    return 0;
}
"""
)


def test_null_is_refused_for_a_list_that_is_counted_by_0_and_an_empty_one_is_no_operands(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(LISTS))
    assert done.returncode == 0, done.stderr
    refused, missing = int(ResultCode.BAD_DATA), int(ResultCode.UNEXPECTED_NULL)
    assert done.stdout.split() == [str(code) for code in [refused] * 2 + [missing] * 4]
