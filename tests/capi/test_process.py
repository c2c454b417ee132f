"""A program's process stays its own: signals, locale, forks, threads, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capi.conftest import Compile, Run
from capi.programs import ADD, HEAD
from nnburst.capi import installed

UNTOUCHED = (
    HEAD
    + ADD
    + r"""
#include <locale.h>
#include <signal.h>

static void handler(int number) { (void)number; }

int main(int argc, char **argv) {
    setlocale(LC_ALL, "C");
    struct sigaction mine;
    memset(&mine, 0, sizeof mine);
    mine.sa_handler = handler;
    sigaction(SIGINT, &mine, NULL);
    struct sigaction before[32], after[32];
    sigset_t mask_before, mask_after;
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &before[i]);
    }
    ANeuralNetworksExecution *execution = ready(compiled(add_model()), false);
    CHECK(ANeuralNetworksExecution_compute(execution));
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &after[i]);
        if (before[i].sa_handler != after[i].sa_handler) {
            printf("signal %d\n", i);
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    if (memcmp(&mask_before, &mask_after, sizeof mask_before) != 0) {
        printf("mask\n");
    }
    printf("%s %d %s\n", setlocale(LC_ALL, NULL), argc, argv[1]);
    return 0;
}
"""
)


def test_signals_locale_and_arguments_stay_the_programs(
    compile_program: Compile, run_compiled: Run
) -> None:
    program = compile_program(UNTOUCHED)
    done = run_compiled(program, "word", PYTHONPATH="/nonexistent", PYTHONHOME="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "C 2 word\n"
    assert done.stderr == ""


FORKED = (
    HEAD
    + ADD
    + r"""
static void *compute(void *argument) {
    for (int i = 0; i < 200; i++) {
        (void)ANeuralNetworksExecution_compute(argument);
    }
    return NULL;
}

int main(void) {
    pid_t early = fork(); /* before anything has started: the child has an interpreter of its own */
    ANeuralNetworksCompilation *compilation = compiled(add_model());
    ANeuralNetworksExecution *execution = ready(compilation, true);
    CHECK(ANeuralNetworksExecution_compute(execution));
    if (early == 0) {
        return 0;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, compute, execution);
    for (int i = 0; i < 20; i++) { /* while another thread may hold the interpreter's lock */
        pid_t child = fork();
        if (child == 0) {
            uint32_t count = 0;
            int refused = ANeuralNetworks_getDeviceCount(&count) == ANEURALNETWORKS_UNAVAILABLE_DEVICE;
            refused &= ANeuralNetworksExecution_compute(execution) == ANEURALNETWORKS_UNAVAILABLE_DEVICE;
            ANeuralNetworksExecution_free(execution);
            ANeuralNetworksCompilation_free(compilation);
            _exit(refused ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) {
            printf("child %d: %d\n", i, status);
        }
    }
    pthread_join(thread, NULL);
    CHECK(ANeuralNetworksExecution_compute(execution));
    int status = -1;
    waitpid(early, &status, 0);
    printf("%d\n", status);
    return 0;
}
"""
)


def test_a_forked_child_is_refused_and_its_parent_goes_on(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(FORKED))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"
    assert done.stderr == ""


EXITING = (
    "#define ELEMENTS 1000000\n"
    + HEAD
    + ADD
    + r"""
static void *compute(void *argument) {
    for (;;) {
        (void)ANeuralNetworksExecution_compute(argument);
    }
    return NULL;
}

int main(void) {
    ANeuralNetworksExecution *execution = ready(compiled(add_model()), true);
    pthread_t thread;
    CHECK(ANeuralNetworksExecution_compute(execution));
    pthread_create(&thread, NULL, compute, execution);
    usleep(20000);
    ANeuralNetworksExecution_free(execution); /* RT:E9: it computes, and stays */
    printf("done\n");
    return 0;
}
"""
)


@pytest.mark.campaign
def test_a_program_may_end_while_another_thread_computes(
    compile_program: Compile, run_compiled: Run
) -> None:
    program = compile_program(EXITING)
    for _ in range(5):
        done = run_compiled(program)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


THREADS = (
    HEAD
    + ADD
    + r"""
static ANeuralNetworksCompilation *compilation;

static void *compute(void *argument) {
    float x[ELEMENTS], y[ELEMENTS] = {0}, z[ELEMENTS];
    for (int i = 0; i < 50; i++) {
        for (int e = 0; e < ELEMENTS; e++) {
            x[e] = (float)(i + e);
        }
        ANeuralNetworksExecution *execution = NULL;
        CHECK(ANeuralNetworksExecution_create(compilation, &execution));
        CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, x, sizeof x));
        CHECK(ANeuralNetworksExecution_setInput(execution, 1, NULL, y, sizeof y));
        CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, z, sizeof z));
        if (i % 2) {
            ANeuralNetworksEvent *event = NULL;
            CHECK(ANeuralNetworksExecution_startCompute(execution, &event));
            CHECK(ANeuralNetworksEvent_wait(event));
            ANeuralNetworksEvent_free(event);
        } else {
            CHECK(ANeuralNetworksExecution_compute(execution));
        }
        ANeuralNetworksExecution_free(execution);
        if (memcmp(x, z, sizeof x) != 0) {
            printf("wrong\n");
        }
    }
    return argument;
}

int main(void) {
    compilation = compiled(add_model());
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, compute, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("done\n");
    return 0;
}
"""
)


def test_threads_compute_executions_of_one_compilation_at_once(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(THREADS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_home_that_cannot_be_written_is_enough(
    compile_program: Compile, run_compiled: Run
) -> None:
    main = """int main(void) {
        CHECK(ANeuralNetworksExecution_compute(ready(compiled(add_model()), false)));
        return 0;
    }"""
    places = dict.fromkeys(
        (
            "HOME",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "XDG_RUNTIME_DIR",
            "TMPDIR",
        ),
        "/proc/nonexistent",
    )
    done = run_compiled(compile_program(HEAD + ADD + main), **places)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cache_folder_has_a_name_of_any_encoding(
    compile_program: Compile, run_compiled: Run, tmp_path: Path
) -> None:
    main = r"""int main(void) {
        const uint8_t token[32] = {1};
        ANeuralNetworksDevice *device = NULL;
        ANeuralNetworksCompilation *compilation = NULL;
        CHECK(ANeuralNetworks_getDevice(0, &device));
        const ANeuralNetworksDevice *devices[] = {device};
        CHECK(ANeuralNetworksCompilation_createForDevices(add_model(), devices, 1, &compilation));
        CHECK(ANeuralNetworksCompilation_setCaching(compilation, "caf\xe9", token));
        CHECK(ANeuralNetworksCompilation_finish(compilation));
        return 0;
    }"""
    program = compile_program(HEAD + ADD + main)
    names = {"NNBURST_DEVICES": "own=reference", "NNBURST_ENABLED_DEVICES": "own"}
    done = run_compiled(program, NNBURST_CPUONLY="0", **names)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / os.fsdecode(b"caf\xe9")).iterdir())


OPENED = (
    HEAD
    + r"""
#include <dlfcn.h>

int main(int argc, char **argv) {
    (void)argc;
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        int (*count)(uint32_t *);
        *(void **)&count = dlsym(library, "ANeuralNetworks_getDeviceCount");
        uint32_t devices = 0;
        CHECK(count(&devices));
        printf("%d %d\n", devices >= 1, dlclose(library));
    }
    void *there = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
    printf("%d\n", there != NULL);
    return 0;
}
"""
)


def test_dlclose_leaves_the_library_loaded(compile_program: Compile, run_compiled: Run) -> None:
    done = run_compiled(compile_program(OPENED, "-Wl,--as-needed", "-ldl"), str(installed.LIBRARY))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"] * 3 + ["1"]


IN_PYTHON = f"""
import ctypes, sys, threading
library = ctypes.CDLL({str(installed.LIBRARY)!r})
count = ctypes.c_uint32()
codes = [library.ANeuralNetworks_getDeviceCount(ctypes.byref(count))]
threads = [
    threading.Thread(
        target=lambda: codes.append(library.ANeuralNetworks_getDeviceCount(ctypes.byref(count)))
    )
    for _ in range(4)
]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(codes, count.value >= 1, "nnburst.runtime" in sys.modules)
"""


def test_the_interpreter_of_a_python_process_is_used(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},  # no other program's drivers
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0, 0] True True\n", "")


FIRST = (
    HEAD
    + ADD
    + r"""
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(void) {
    double began = now();
    ANeuralNetworksDevice *device = NULL;
    const char *name = NULL;
    CHECK(ANeuralNetworks_getDevice(0, &device));
    CHECK(ANeuralNetworksDevice_getName(device, &name));
    const ANeuralNetworksDevice *listed[] = {device};
    ANeuralNetworksCompilation *compilation = NULL;
    CHECK(ANeuralNetworksCompilation_createForDevices(add_model(), listed, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    CHECK(ANeuralNetworksExecution_compute(ready(compilation, false)));
    printf("%s %.0f ms", name, now() - began);
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "VmRSS", 5) == 0) {
            printf(" %s", line);
        }
    }
    return 0;
}
"""
)


def test_a_new_program_computes_on_a_driver_that_it_starts(
    compile_program: Compile, run_compiled: Run
) -> None:
    program = compile_program(FIRST, "-std=gnu99")
    names = {"NNBURST_DEVICES": "nothing=null", "NNBURST_ENABLED_DEVICES": "nothing"}
    done = run_compiled(program, NNBURST_CPUONLY="0", **names)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nothing ")
    print(done.stdout)


FORKED_EARLY = (
    HEAD
    + ADD
    + r"""
static void *first(void *argument) {
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    return argument;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, first, NULL);
    for (int i = 0; i < 8; i++) { /* while the thread starts the interpreter */
        usleep(1u << i << 8);
        pid_t child = fork();
        if (child == 0) {
            uint32_t count = 0;
            alarm(60);
            int code = ANeuralNetworks_getDeviceCount(&count);
            _exit(code == ANEURALNETWORKS_UNAVAILABLE_DEVICE || code == ANEURALNETWORKS_NO_ERROR ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) {
            printf("child %d: %d\n", i, status);
        }
    }
    pthread_join(thread, NULL);
    CHECK(ANeuralNetworksExecution_compute(ready(compiled(add_model()), false)));
    printf("done\n");
    return 0;
}
"""
)


def test_a_child_that_is_forked_while_the_interpreter_starts_is_not_stuck(
    compile_program: Compile, run_compiled: Run
) -> None:
    done = run_compiled(compile_program(FORKED_EARLY), timeout=600)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
