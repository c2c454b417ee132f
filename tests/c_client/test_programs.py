"""Programs in C and C++ without Python: compiled, run, and looked at from outside."""

from __future__ import annotations

import platform
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from c_client.conftest import Compile
from c_client.interface import LIBRARY
from c_client.programs import HEAD, READY, TRAPS
from capi.conftest import found_compiler
from client.service import Service
from nnburst.capi import installed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "client"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service("add=serving.networks:add", executor="null") as service:
        yield service


def run(program: Path, *words: str) -> list[str]:
    """Lines that a program prints; it must end well and print nothing else."""
    done = subprocess.run(
        [str(program), *words], capture_output=True, text=True, check=False, timeout=120
    )
    if done.stdout == "no traps\n":
        pytest.skip("the kernel does not give system calls to a handler")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_client_has_no_python_in_its_process_and_three_mebibytes_more_than_an_empty_one(
    compile_program: Compile, service: Service
) -> None:
    client = compile_program(
        HEAD
        + READY
        + r"""
int main(int argc, char **argv) {
    char line[4096];
    ready(argv[argc - 1]);
    print_resident();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) != NULL) {
        fputs(line, stdout);
    }
    nnburst_close_device(device);
    return 0;
}
""",
        name="client",
    )
    empty = compile_program(HEAD + "int main(void) { print_resident(); return 0; }", name="empty")
    resident, *maps = run(client, service.address)
    files = {Path(words[5]).name for line in maps if len(words := line.split()) == 6}
    assert "libnnburst.so" in files
    assert {name for name in files if "python" in name or name.endswith((".py", ".pyc"))} == set()
    assert int(resident) - int(run(empty)[0]) <= 3 * 1024


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the traps are written for x86-64")
def test_nothing_between_a_run_and_its_return_allocates_or_locks_and_spinning_calls_no_kernel(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + TRAPS
        + READY
        + r"""
int main(int argc, char **argv) {
    ready(argv[argc - 1]);
    set_traps();
    unsigned spun = 0;
    time_t end = time(NULL) + 60; /* while other programs take all cores it does not spin */
    (void)setpriority(PRIO_PROCESS, 0, -20);
    for (unsigned run = 0; (run < 2000 || spun < 1) && time(NULL) < end; run++) {
        unsigned wakes = 0;
        calls = 0;
        armed = 1;
        int code = nnburst_run(request, 60 * SECOND);
        armed = 0;
        CHECK(code);
        for (unsigned i = 0; i < calls && i < MOST; i++) {
            long number = numbers[i];
            wakes += number == SYS_futex && (operations[i] & FUTEX_CMD_MASK) == FUTEX_WAKE_BITSET;
            /* Before a sleep and before it spins again it looks for contention: csrc/cpu_contention.h. */
            if (number != SYS_futex && number != SYS_futex_waitv && number != SYS_openat &&
                number != SYS_read && number != SYS_close && number != SYS_gettid) {
                fprintf(stderr, "run %u makes system call %ld\n", run, number);
                return 1;
            }
        }
        spun += calls == wakes && wakes <= 1; /* a driver that sleeps is woken */
    }
    printf("%u allocations, %u locks, %s\n", allocations, locks,
           spun != 0 ? "runs that spin make no other call" : "every run slept");
    nnburst_memory *memory = NULL;
    calls = 0;
    armed = 1;
    int code = nnburst_create_memory(64, &memory);
    armed = 0;
    CHECK(code);
    printf("traps work: %d\n", allocations != 0 && calls != 0);
    nnburst_close_device(device);
    return 0;
}
"""
    )
    counted, works = run(program, service.address)
    assert counted == "0 allocations, 0 locks, runs that spin make no other call"
    assert works == "traps work: 1"


def test_forked_child_is_refused_and_its_parent_goes_on(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + READY
        + r"""
int main(int argc, char **argv) {
    uint32_t dimensions[8], rank = 8;
    uint64_t on_device, in_driver;
    nnburst_operand operand;
    nnburst_request *unbound;
    ready(argv[argc - 1]);
    CHECK(nnburst_create_request(burst, &unbound));
    CHECK(nnburst_output_dimensions(request, 0, dimensions, &rank));
    pid_t child = fork();
    if (child == 0) {
        nnburst_memory *memory;
        nnburst_models *models;
        CHECK(nnburst_create_memory(64, &memory));
        const int codes[] = {
            nnburst_set_input(unbound, 0, memory, 0, 8),
            nnburst_set_output(unbound, 0, memory, 0, 8),
            nnburst_set_input_dimensions(unbound, 0, dimensions, rank),
            nnburst_omit_input(unbound, 0),
            nnburst_set_measure(unbound, 1),
            nnburst_bind(unbound),
            nnburst_reset_states(request),
            nnburst_timing(request, &on_device, &in_driver),
            nnburst_output_dimensions(request, 0, dimensions, &rank),
            nnburst_input(model, 0, &operand, sizeof operand),
            nnburst_output(model, 0, &operand, sizeof operand),
        };
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            if (codes[i] != NNBURST_BAD_STATE || strstr(nnburst_error_message(), "forked this one") == NULL) {
                _exit(2 + (int)i);
            }
        }
        nnburst_free_memory(memory);
        int expected = nnburst_run(request, SECOND) == NNBURST_BAD_STATE &&
                       nnburst_list_models(device, SECOND, &models) == NNBURST_BAD_STATE &&
                       nnburst_input_data(request, 0) == NULL && !nnburst_is_alive(device) &&
                       nnburst_device_fd(device) == -1 && nnburst_burst_fd(burst) == -1;
        nnburst_close_device(device);
        _exit(expected ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(nnburst_run(request, 60 * SECOND));
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    nnburst_close_device(device);
    return 0;
}
"""
    )
    assert run(program, service.address) == ["0"]


def test_memory_of_a_parent_is_no_memory_of_its_child(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + READY
        + r"""
#include <sys/mman.h>

int main(int argc, char **argv) {
    nnburst_memory *memory;
    CHECK(nnburst_create_memory(4096, &memory)); /* before the program has a device */
    void *place = nnburst_memory_data(memory);
    pid_t child = fork();
    if (child == 0) {
        int expected = nnburst_memory_data(memory) == NULL;
        char *own = mmap(place, 4096, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        ready(argv[argc - 1]);
        nnburst_request *other;
        CHECK(nnburst_create_request(burst, &other));
        expected = expected && nnburst_set_input(other, 0, memory, 0, 8) == NNBURST_BAD_STATE &&
                   strstr(nnburst_error_message(), "memory: it was made by the process that forked") != NULL;
        nnburst_free_memory(memory);
        own[0] = 1; /* the child's own, where the parent's memory lies */
        nnburst_close_device(device);
        _exit(expected && own == place ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    memset(nnburst_memory_data(memory), 1, 4096);
    nnburst_free_memory(memory);
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 0;
}
"""
    )
    assert run(program, service.address) == ["0"]


def test_forked_child_closes_a_device_that_threads_of_its_parent_are_calling(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + READY
        + r"""
#include <signal.h>
#include <sys/syscall.h>

static volatile pid_t callers[2];
static volatile int goes_on;

static void *call(void *caller) {
    nnburst_models *models;
    *(volatile pid_t *)caller = (pid_t)syscall(SYS_gettid);
    do { /* a thread of the driver may answer once more before it stops */
        CHECK(nnburst_list_models(device, 60 * SECOND, &models));
        nnburst_free_models(models);
    } while (!goes_on);
    return NULL;
}

static void await(pid_t process, pid_t thread, char expected) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)process, (int)thread);
    while (state != expected) {
        FILE *file = fopen(path, "r");
        if (file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            exit(2);
        }
        fclose(file);
    }
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    ready(argv[argc - 1]);
    pid_t driver = nnburst_device_pid(device);
    kill(driver, SIGSTOP);
    await(driver, driver, 'T');
    for (int i = 0; i < 2; i++) { /* one call waits for its answer, the other for its turn */
        pthread_create(&threads[i], NULL, call, (void *)(uintptr_t)&callers[i]);
        while (callers[i] == 0) {
            usleep(1000);
        }
        await(getpid(), callers[i], 'S');
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        nnburst_close_device(device);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    goes_on = 1;
    kill(driver, SIGCONT);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d\n", status);
    nnburst_close_device(device);
    return 0;
}
"""
    )
    assert run(program, service.address) == ["0"]


def test_calls_beside_a_reconnection_end_with_dead_object_or_their_own_answer(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + r"""
#include <signal.h>

static nnburst_device *device;
static volatile int ends;

static void *call(void *argument) {
    nnburst_models *models;
    while (!ends) {
        int code = nnburst_list_models(device, 60 * SECOND, &models);
        if (code == NNBURST_NO_ERROR) {
            if (nnburst_models_count(models) != 1 || strcmp(nnburst_models_name(models, 0), "add") != 0) {
                printf("another answer\n");
            }
            nnburst_free_models(models);
        } else if (code != NNBURST_DEAD_OBJECT) {
            printf("%s: %s\n", nnburst_result_name(code), nnburst_error_message());
        }
    }
    return argument;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    nnburst_model *model;
    CHECK(nnburst_connect(argv[argc - 1], 0, 60 * SECOND, &device));
    CHECK(nnburst_open_model(device, "add", 0, 60 * SECOND, &model));
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, call, NULL);
    }
    for (int i = 0; i < 40; i++) {
        if (i % 10 == 0) {
            kill(nnburst_device_pid(device), SIGKILL);
        }
        CHECK(nnburst_reconnect(device, 60 * SECOND)); /* also from a driver that is alive */
    }
    ends = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    nnburst_close_device(device);
    return 0;
}
"""
    )
    assert run(program, service.address) == []


def test_lack_of_descriptors_is_no_bad_data_and_ends_when_there_are_some_again(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program(
        HEAD
        + r"""
#include <sys/resource.h>
#include <sys/socket.h>

/* No further descriptor, or as many as before. */
static void limit(int is_short) {
    static rlim_t before;
    struct rlimit now;
    getrlimit(RLIMIT_NOFILE, &now);
    int next = dup(0);
    close(next);
    before = before == 0 ? now.rlim_cur : before;
    now.rlim_cur = is_short ? (rlim_t)next : before;
    setrlimit(RLIMIT_NOFILE, &now);
}

#define TRY(call)                                                                                     \
    do {                                                                                              \
        limit(1);                                                                                     \
        int code_ = (call);                                                                           \
        limit(0);                                                                                     \
        printf("%s", nnburst_result_name(code_));                                                     \
        CHECK(call);                                                                                  \
        puts("");                                                                                     \
    } while (0)

int main(int argc, char **argv) {
    nnburst_device *device;
    nnburst_model *model;
    nnburst_burst *burst;
    nnburst_request *request;
    nnburst_memory *memory, *same;
    nnburst_queue *named, *sent, *queue;
    int pair[2];
    CHECK(nnburst_connect(argv[1], 0, 60 * SECOND, &device));
    CHECK(nnburst_open_model(device, "add", 0, 60 * SECOND, &model));
    CHECK(nnburst_open_burst(model, NULL, 0, 60 * SECOND, &burst));
    CHECK(nnburst_create_request(burst, &request));
    CHECK(nnburst_bind(request));
    TRY(nnburst_run(request, 60 * SECOND));
    CHECK(nnburst_create_memory(64, &memory));
    TRY(nnburst_memory_from_fd(nnburst_memory_fd(memory), &same));
    nnburst_free_memory(same);
    nnburst_free_memory(memory);
    CHECK(nnburst_create_queue(argv[2], NNBURST_WRITER, 4, 8, NULL, 0, &named));
    TRY(nnburst_open_queue(argv[2], NNBURST_READER, 4, NULL, 0, 60 * SECOND, &queue));
    nnburst_close_queue(queue);
    nnburst_close_queue(named);
    CHECK(nnburst_create_queue(NULL, NNBURST_WRITER, 4, 8, NULL, 0, &sent));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return 1;
    }
    CHECK(nnburst_send_queue(pair[0], sent)); /* a first one, which is lost, and the next */
    CHECK(nnburst_send_queue(pair[0], sent));
    TRY(nnburst_receive_queue(pair[1], NNBURST_READER, 4, NULL, 0, 60 * SECOND, &queue));
    nnburst_close_queue(queue);
    nnburst_close_queue(sent);
    nnburst_close_device(device);
    (void)argc;
    return 0;
}
"""
    )
    names = run(program, service.address, f"/nnburst-test-{uuid.uuid4().hex}")
    # NNAPI: a burst carries no RESOURCE_EXHAUSTED.
    assert names == ["OP_FAILED", *["RESOURCE_EXHAUSTED"] * 3]


def test_ten_loads_and_unloads_leave_no_thread_no_descriptor_and_no_mapping(
    compile_program: Compile, service: Service
) -> None:
    text = r"""
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOL(name) (uintptr_t)dlsym(library, "nnburst_" #name)
#define FUNCTION(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))SYMBOL(name)

static int entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static int maps(void) {
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file) != NULL) {
        found += strstr(line, "nnburst") != NULL;
    }
    fclose(file);
    return found;
}

static void cycle(const char *path, const char *address) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *device, *model, *burst, *request;
    FUNCTION(connect, const char *, uint32_t, uint64_t, void **);
    FUNCTION(open_model, void *, const char *, uint32_t, uint64_t, void **);
    FUNCTION(open_burst, void *, void *, size_t, uint64_t, void **);
    FUNCTION(create_request, void *, void **);
    FUNCTION(bind, void *);
    FUNCTION(run, void *, uint64_t);
    FUNCTION(close_device, void *);
    const uint64_t patience = 60000000000ull;
    if (connect(address, 0, patience, &device) || open_model(device, "add", 0, patience, &model) ||
        open_burst(model, NULL, 0, patience, &burst) || create_request(burst, &request) || bind(request) ||
        run(request, patience)) {
        exit(1);
    }
    close_device(device);
    dlclose(library);
}

int main(int argc, char **argv) {
    cycle(argv[argc - 2], argv[argc - 1]);
    int threads = entries("/proc/self/task");
    int descriptors = entries("/proc/self/fd");
    for (int i = 0; i < 10; i++) {
        cycle(argv[argc - 2], argv[argc - 1]);
    }
    threads -= entries("/proc/self/task");
    descriptors -= entries("/proc/self/fd");
    printf("%d %d %d\n", threads, descriptors, maps());
    return 0;
}
"""
    program = compile_program(text, "-Wl,--as-needed")
    assert run(program, str(LIBRARY), service.address) == ["0 0 0"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_example_lists_describes_and_runs(
    compile_program: Compile, service: Service, compiler: str
) -> None:
    text = (EXAMPLES / "first_run.c").read_text()
    lines = run(compile_program(text, compiler=compiler), service.address, "add")
    assert lines == [
        "served: add version 1",
        "input a: 2 3 (24 bytes)",
        "input b: 2 3 (24 bytes)",
        "output y: 2 3 (24 bytes)",
        "ran: first byte 0, measured: yes",
    ]


def test_example_of_an_event_loop_collects_all_results(
    compile_program: Compile, service: Service
) -> None:
    program = compile_program((EXAMPLES / "event_loop.c").read_text())
    assert run(program, service.address, "add", "50") == ["50 results"]


def test_example_in_rust_loads_the_library_and_runs(service: Service, tmp_path: Path) -> None:
    rustc, program = found_compiler("rustc"), tmp_path / "run"
    if rustc is None or not LIBRARY.is_file():
        pytest.skip("no rustc, or no library")
    words = [rustc, "--edition", "2021", "-o", str(program), str(EXAMPLES / "run.rs")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(program, str(LIBRARY), service.address, "add") == ["ran: first byte 0"]


@pytest.mark.campaign
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_example_of_a_control_loop_keeps_its_ticks(
    compile_program: Compile, service: Service, compiler: str
) -> None:
    program = compile_program((EXAMPLES / "control_loop.cpp").read_text(), compiler=compiler)
    (line,) = run(program, service.address, "add", "100")
    assert line.startswith("100 ticks, ")


def test_pkg_config_finds_header_and_library(tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "nnburst"],
        capture_output=True, text=True, check=True,
        env={"PKG_CONFIG_PATH": str(installed.PKG_CONFIG_FOLDER), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "-lnnburst" in done.stdout
    assert "capi/" in done.stdout
