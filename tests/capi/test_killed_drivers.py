"""A C program whose driver is killed: DEAD_OBJECT if it was asked for, right numbers if it was not."""

from __future__ import annotations

import json

import pytest

from capi.conftest import Compile, Run
from capi.programs import ADD, HEAD
from nnburst.hal import environment

#: `killed explicit|default reusable|once COUNT`: kills its driver so often. Prints how long the computation
#: took that found it dead, and the next one, which is right: median, 99th percentile and longest, in µs.
#: A driver whose death was noticed between two computations is made again before the next, which is right.
KILLED = (
    HEAD
    + ADD
    + r"""
#include <dirent.h>
#include <signal.h>
#include <time.h>

static ANeuralNetworksCompilation *compilation;
static ANeuralNetworksExecution *reusable;
static ANeuralNetworksBurst *burst;
static bool once;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static bool is_alive(pid_t pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
        state = 'X';
    }
    if (file != NULL) {
        fclose(file);
    }
    return state != 'X' && state != 'Z';
}

/* The child of one of this process's threads that lives; 0 if it has none. */
static pid_t living_child(const char *thread) {
    char path[300];
    pid_t child = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", thread);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%d", &child) == 1 && !is_alive(child)) {
        child = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return child;
}

/* The driver: the one child of the library's that lives. */
static pid_t driver(void) {
    DIR *threads = opendir("/proc/self/task");
    pid_t found = 0;
    for (struct dirent *thread = readdir(threads); thread != NULL && found == 0; thread = readdir(threads)) {
        found = living_child(thread->d_name);
    }
    closedir(threads);
    if (found == 0) {
        fprintf(stderr, "no driver\n");
        exit(1);
    }
    return found;
}

/* Code of one computation, whose numbers are checked if it is NO_ERROR. */
static int computed(void) {
    static float value;
    value += 1;
    for (int i = 0; i < ELEMENTS; i++) {
        a[i] = value;
        b[i] = 2;
        sum[i] = -1;
    }
    ANeuralNetworksExecution *execution = once ? ready(compilation, false) : reusable;
    int code = ANeuralNetworksExecution_burstCompute(execution, burst);
    if (once) {
        ANeuralNetworksExecution_free(execution);
    }
    for (int i = 0; code == 0 && i < ELEMENTS; i++) {
        if (sum[i] != value + 2) {
            fprintf(stderr, "%g + 2 became %g\n", (double)value, (double)sum[i]);
            exit(1);
        }
    }
    return code;
}

static int by_size(const void *one, const void *other) {
    double x = *(const double *)one, y = *(const double *)other;
    return (x > y) - (x < y);
}

static void report(const char *what, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_size);
    printf("%s %.0f %.0f %.0f\n", what, times[count / 2], times[(count * 99 - 1) / 100], times[count - 1]);
}

int main(int argc, char **argv) {
    bool explicit_list = argc > 1 && strcmp(argv[1], "explicit") == 0;
    once = argc > 2 && strcmp(argv[2], "once") == 0;
    int count = argc > 3 ? atoi(argv[3]) : 1;
    double *until_end = calloc((size_t)count, sizeof *until_end);
    double *until_right = calloc((size_t)count, sizeof *until_right);
    ANeuralNetworksModel *model = add_model();
    ANeuralNetworksDevice *device = NULL;
    CHECK(ANeuralNetworks_getDevice(0, &device));
    const ANeuralNetworksDevice *listed[] = {device};
    if (explicit_list) {
        CHECK(ANeuralNetworksCompilation_createForDevices(model, listed, 1, &compilation));
    } else {
        CHECK(ANeuralNetworksCompilation_create(model, &compilation));
    }
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    CHECK(ANeuralNetworksBurst_create(compilation, &burst));
    reusable = ready(compilation, true);
    int died = 0;
    for (int round = 0; round < count; round++) {
        for (int i = 0; i < 5; i++) {
            CHECK(computed());
        }
        pid_t pid = driver();
        double began = now();
        kill(pid, SIGKILL);
        int code = 0;
        for (bool was_alive = true; code == 0 && was_alive;) { /* it may answer before it is gone */
            was_alive = is_alive(pid);
            began = now();
            code = computed();
        }
        until_end[round] = now() - began;
        if (code != ANEURALNETWORKS_NO_ERROR && !(explicit_list && code == ANEURALNETWORKS_DEAD_OBJECT)) {
            fprintf(stderr, "round %d: code %d\n", round, code);
            return 1;
        }
        died += code != ANEURALNETWORKS_NO_ERROR;
        began = now();
        CHECK(computed());
        until_right[round] = now() - began;
    }
    printf("%d of %d DEAD_OBJECT\n", died, count);
    report("ended", until_end, count);
    report("right", until_right, count);
    return 0;
}
"""
)

KILLS = environment.KILLS.read()


#: An engine that is half as expensive as the CPU, so that models go to it.
CHEAP = """
import json
from pathlib import Path
from nnburst.executor.reference.executor import ReferenceExecutor

class Cheap(ReferenceExecutor):
    capabilities_file = Path(__file__).with_suffix(".json")
"""
COSTS = {"exec_time": 0.5, "power_usage": 0.5}


def kill(compile_program: Compile, run_compiled: Run, *args: str) -> None:
    program = compile_program(KILLED, "-std=gnu99")
    engine = program.with_name("engine")
    engine.mkdir()
    (engine / "cheap.py").write_text(CHEAP)
    operands = dict.fromkeys(("TENSOR_FLOAT32", "INT32"), COSTS)
    costs = {"operands": operands, "relaxed_scalar": COSTS, "relaxed_tensor": COSTS}
    (engine / "cheap.json").write_text(json.dumps(costs))
    done = run_compiled(
        program,
        *args,
        timeout=120 + 20 * int(args[-1]),
        NNBURST_CPUONLY="0",
        NNBURST_DEVICES="victim=cheap:Cheap",
        NNBURST_ENABLED_DEVICES="victim",
        PYTHONPATH=str(engine),
        XDG_CACHE_HOME=str(engine),
    )
    assert (done.returncode, done.stderr) == (0, "")
    print(*args, done.stdout.replace("\n", ", "))


@pytest.mark.campaign
@pytest.mark.parametrize("way", ["reusable", "once"])
@pytest.mark.parametrize("devices", ["explicit", "default"])
def test_kills_are_survived(
    compile_program: Compile, run_compiled: Run, devices: str, way: str
) -> None:
    kill(compile_program, run_compiled, devices, way, "3")


@pytest.mark.campaign
@pytest.mark.parametrize("way", ["reusable", "once"])
@pytest.mark.parametrize("devices", ["explicit", "default"])
def test_many_kills_are_survived(
    compile_program: Compile, run_compiled: Run, devices: str, way: str
) -> None:
    kill(compile_program, run_compiled, devices, way, str(KILLS))
