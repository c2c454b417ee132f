"""Handles that do not live are refused before anything is followed: freed, of another kind, wild."""

from __future__ import annotations

from capi.conftest import Compile, Run
from capi.programs import ADD, HEAD

FREED = (
    HEAD
    + ADD
    + r"""
int main(void) {
    ANeuralNetworksModel *model = add_model();
    ANeuralNetworksCompilation *compilation = compiled(model);
    ANeuralNetworksExecution *execution = ready(compilation, false);

    /* Of another kind. */
    printf("%d\n", ANeuralNetworksModel_finish((ANeuralNetworksModel *)compilation));
    printf("%d\n", ANeuralNetworksExecution_compute((ANeuralNetworksExecution *)model));
    ANeuralNetworksModel_free((ANeuralNetworksModel *)compilation);
    CHECK(ANeuralNetworksExecution_compute(execution));

    /* Wild: addresses of this program's, and any number. */
    int here = 0;
    uintptr_t numbers[] = {1, 8, (uintptr_t)&here, (uintptr_t)main, UINTPTR_MAX, (uintptr_t)execution + 16,
                           (uintptr_t)execution ^ ((uintptr_t)1 << 44), (uintptr_t)execution + 1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        printf("%d\n", ANeuralNetworksExecution_compute((ANeuralNetworksExecution *)numbers[i]));
        ANeuralNetworksExecution_free((ANeuralNetworksExecution *)numbers[i]);
    }

    /* Freed, also if a newer object has taken the place. */
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksExecution *newer = ready(compilation, false);
    printf("%d\n", ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);
    CHECK(ANeuralNetworksExecution_compute(newer));
    ANeuralNetworksModel_free(model); /* before what is built on it: its parts keep it */
    ANeuralNetworksExecution_free(newer);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksCompilation_free(compilation);
    printf("%d\n", ANeuralNetworksCompilation_finish(compilation));
    return 0;
}
"""
)


def test_freed_foreign_and_wild_handles_are_refused(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(FREED, "-Wno-pedantic"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4"] * 12
    assert done.stderr == ""


LISTS = (
    HEAD
    + ADD
    + r"""
int main(void) {
    ANeuralNetworksModel *model = add_model();
    ANeuralNetworksDevice *device = NULL, *again = NULL;
    CHECK(ANeuralNetworks_getDevice(0, &device));
    CHECK(ANeuralNetworks_getDevice(0, &again));
    printf("%d\n", device == again);
    bool supported[1] = {false};
    const ANeuralNetworksDevice *good[] = {device}, *hole[] = {NULL}, *wild[] = {(void *)model};
    CHECK(ANeuralNetworksModel_getSupportedOperationsForDevices(model, good, 1, supported));
    printf("%d\n", supported[0]);
    printf("%d\n", ANeuralNetworksModel_getSupportedOperationsForDevices(model, hole, 1, supported));
    printf("%d\n", ANeuralNetworksModel_getSupportedOperationsForDevices(model, wild, 1, supported));
    printf("%d\n", ANeuralNetworksModel_getSupportedOperationsForDevices(model, good, 1u << 31, supported));
    ANeuralNetworksCompilation *compilation = (void *)1;
    printf("%d ", ANeuralNetworksCompilation_createForDevices(model, wild, 1, &compilation));
    printf("%d\n", compilation == NULL);
    return 0;
}
"""
)


def test_handles_in_lists_are_looked_up_too(compile_program: Compile, run_compiled: Run) -> None:
    done = run_compiled(compile_program(LISTS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1", "3", "4", "4", "4", "1"]
