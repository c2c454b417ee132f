"""A program may end the Python in its process and go on: calls are refused, and nothing crashes or hangs."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from capi.conftest import Compile, Run
from capi.programs import ADD, HEAD

PYTHON = (
    HEAD
    + ADD
    + r"""
#include <dlfcn.h>

static void *(*save)(void);
static void (*restore)(void *);
static int (*ensure)(void);
static int (*finalize)(void);
static void *state;

static void find(void) {
    *(void **)&save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
    *(void **)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
    *(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    *(void **)&finalize = dlsym(RTLD_DEFAULT, "Py_FinalizeEx");
}

/* The program's own Python, if its library is given; else the one that the library starts. */
static void begin(const char *library) {
    if (library != NULL) {
        void (*initialize)(int);
        void *python = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
        *(void **)&initialize = dlsym(python, "Py_InitializeEx");
        initialize(0);
        find();
        state = save();
    }
}

static int end(void) {
    if (state != NULL) {
        restore(state);
    } else {
        find();
        (void)ensure();
    }
    return finalize();
}

static ANeuralNetworksCompilation *on_driver(void) {
    ANeuralNetworksDevice *device = NULL;
    ANeuralNetworksCompilation *compilation = NULL;
    CHECK(ANeuralNetworks_getDevice(0, &device));
    const ANeuralNetworksDevice *listed[] = {device};
    CHECK(ANeuralNetworksCompilation_createForDevices(add_model(), listed, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    return compilation;
}

static float from[3 * ELEMENTS];

static ANeuralNetworksMemory *shared(void) {
    ANeuralNetworksMemory *memory = NULL;
    int fd = memfd_create("tensors", 0);
    if (ftruncate(fd, sizeof from) != 0) {
        exit(1);
    }
    CHECK(ANeuralNetworksMemory_createFromFd(sizeof from, PROT_READ | PROT_WRITE, fd, 0, &memory));
    return memory;
}

static ANeuralNetworksExecution *over(ANeuralNetworksCompilation *compilation,
                                      ANeuralNetworksMemory *memory) {
    ANeuralNetworksExecution *execution = NULL;
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    for (int i = 0; i < 2; i++) {
        CHECK(ANeuralNetworksExecution_setInputFromMemory(execution, i, NULL, memory, i * sizeof a,
                                                          sizeof a));
    }
    CHECK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 2 * sizeof a,
                                                       sizeof a));
    return execution;
}
"""
)

USED = (
    PYTHON
    + r"""
#define PRINT(call) printf("%d ", call)

int main(int argc, char **argv) {
    begin(argc > 1 ? argv[1] : NULL);
    ANeuralNetworksCompilation *compilation = on_driver();
    ANeuralNetworksMemory *memory = shared();
    ANeuralNetworksBurst *burst = NULL;
    CHECK(ANeuralNetworksBurst_create(compilation, &burst));
    ANeuralNetworksExecution *reusable = ready(compilation, true);
    for (int i = 0; i < 5; i++) { /* the third and later ones run in C */
        CHECK(ANeuralNetworksExecution_burstCompute(reusable, burst));
        ANeuralNetworksExecution *once[] = {ready(compilation, false), over(compilation, memory)};
        for (int k = 0; k < 2; k++) {
            CHECK(ANeuralNetworksExecution_burstCompute(once[k], burst));
            ANeuralNetworksExecution_free(once[k]);
        }
    }
    ANeuralNetworksExecution *native = ready(compilation, false);
    ANeuralNetworksExecution *placed = over(compilation, memory);
    ANeuralNetworksExecution *unset = NULL, *none = NULL;
    CHECK(ANeuralNetworksExecution_create(compilation, &unset));
    PRINT(end());
    if (argc > 2 && strcmp(argv[2], "exit") == 0) {
        return 0;
    }
    uint32_t count = 0;
    ANeuralNetworksModel *model = NULL;
    ANeuralNetworksEvent *event = NULL;
    if (argc > 2) {
        goto freeing;
    }
    PRINT(ANeuralNetworks_getDeviceCount(&count));
    PRINT(ANeuralNetworksModel_create(&model));
    PRINT(ANeuralNetworksExecution_burstCompute(reusable, burst));
    PRINT(ANeuralNetworksExecution_compute(reusable));
    PRINT(ANeuralNetworksExecution_startCompute(reusable, &event));
    PRINT(ANeuralNetworksExecution_burstCompute(native, burst));
    PRINT(ANeuralNetworksExecution_burstCompute(placed, burst));
    PRINT(ANeuralNetworksExecution_setInput(unset, 0, NULL, a, sizeof a));
    PRINT(ANeuralNetworksExecution_setInputFromMemory(unset, 0, NULL, memory, 0, sizeof a));
    PRINT(ANeuralNetworksExecution_setReusable(unset, false));
    PRINT(ANeuralNetworksExecution_create(compilation, &none));
    printf("%d %d", model == NULL && event == NULL && none == NULL,
           ANeuralNetworks_getDefaultLoopTimeout() > 0);
freeing:
    for (int i = 0; i < 2; i++) {
        ANeuralNetworksExecution_free(reusable);
        ANeuralNetworksExecution_free(native);
        ANeuralNetworksExecution_free(placed);
        ANeuralNetworksExecution_free(unset);
    }
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksMemory_free(memory);
    ANeuralNetworksCompilation_free(compilation);
    return 0;
}
"""
)

COMPUTING = (
    PYTHON
    + r"""
static ANeuralNetworksCompilation *compilation;
static ANeuralNetworksMemory *memory;
static pthread_barrier_t barrier;

static void *compute(void *argument) {
    int kind = *(int *)argument;
    ANeuralNetworksBurst *burst = NULL;
    CHECK(ANeuralNetworksBurst_create(compilation, &burst));
    ANeuralNetworksExecution *reusable = ready(compilation, true);
    int code = ANEURALNETWORKS_NO_ERROR;
    for (long i = 0; code == ANEURALNETWORKS_NO_ERROR; i++) {
        if (i == 20) {
            pthread_barrier_wait(&barrier);
        }
        ANeuralNetworksExecution *execution = kind == 0 ? reusable : NULL;
        if (kind != 0) {
            code = ANeuralNetworksExecution_create(compilation, &execution);
        }
        if (kind != 0 && code == ANEURALNETWORKS_NO_ERROR) {
            code = ANeuralNetworksExecution_setInput(execution, 0, NULL, a, sizeof a);
        }
        if (kind != 0 && code == ANEURALNETWORKS_NO_ERROR) {
            code = ANeuralNetworksExecution_setInput(execution, 1, NULL, b, sizeof b);
        }
        if (kind != 0 && code == ANEURALNETWORKS_NO_ERROR) {
            code = kind == 1
                       ? ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, sizeof sum)
                       : ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0,
                                                                      sizeof a);
        }
        if (code == ANEURALNETWORKS_NO_ERROR) {
            code = kind == 3 ? ANeuralNetworksExecution_compute(execution)
                             : ANeuralNetworksExecution_burstCompute(execution, burst);
        }
        if (execution != reusable) {
            ANeuralNetworksExecution_free(execution);
        }
    }
    *(int *)argument = code;
    return NULL;
}

int main(int argc, char **argv) {
    begin(argc > 1 ? argv[1] : NULL);
    compilation = on_driver();
    memory = shared();
    pthread_t threads[4];
    int codes[] = {0, 1, 2, 3};
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, compute, &codes[i]);
    }
    pthread_barrier_wait(&barrier); /* all compute in C now */
    printf("%d", end());
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        printf(" %d", codes[i]);
    }
    return 0;
}
"""
)

UNAVAILABLE = 9
#: The Python that a program is linked with finds this one's packages by these.
FOUND = {
    "PYTHONHOME": sys.base_prefix,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
}
#: And no driver that runs on this machine.
ONE_DRIVER = {
    "NNBURST_CPUONLY": "0",
    "NNBURST_DEVICES": "own=reference",
    "XDG_RUNTIME_DIR": "/proc/nonexistent",
}
ENDED = "nnburst: the Python of this process has ended: NNAPI can no longer be used in it\n"


@pytest.fixture(params=["the program's", "the library's"])
def arguments(request: pytest.FixtureRequest) -> list[str]:
    """Of a test's program: the library of the Python that it starts itself."""
    if request.param == "the library's":
        return []
    folder, name = sysconfig.get_config_vars("LIBDIR", "LDLIBRARY")
    library = Path(folder, name)
    if library.suffix == ".a":
        pytest.skip("this Python has no shared library")
    return [str(library)]


@pytest.mark.every_day("the program's")
def test_calls_after_the_end_of_python_are_refused(
    compile_program: Compile, run_compiled: Run, arguments: list[str]
) -> None:
    program = compile_program(USED, "-ldl")
    done = run_compiled(program, *arguments, **(FOUND if arguments else {}), **ONE_DRIVER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", *[str(UNAVAILABLE)] * 11, "1", "1"]
    assert done.stderr == ENDED


@pytest.mark.every_day("free")
@pytest.mark.parametrize("then", ["exit", "free"])
def test_a_program_ends_well_and_without_a_line_after_the_end_of_its_python(
    compile_program: Compile, run_compiled: Run, then: str
) -> None:
    folder, name = sysconfig.get_config_vars("LIBDIR", "LDLIBRARY")
    if name.endswith(".a"):
        pytest.skip("this Python has no shared library")
    program = compile_program(USED, "-ldl")
    done = run_compiled(program, str(Path(folder, name)), then, **FOUND, **ONE_DRIVER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 ", "")


@pytest.mark.campaign
def test_threads_that_compute_while_python_ends_are_refused_from_then_on(
    compile_program: Compile, run_compiled: Run, arguments: list[str]
) -> None:
    program = compile_program(COMPUTING, "-ldl")
    for _ in range(3):
        done = run_compiled(program, *arguments, **(FOUND if arguments else {}), **ONE_DRIVER)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["0", *[str(UNAVAILABLE)] * 4]
        assert done.stderr == ENDED
