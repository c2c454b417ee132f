"""Pieces of C that the tests' programs are put together from."""

from __future__ import annotations

#: Includes, and CHECK, which ends the program with the call that failed.
HEAD = r"""
#include <dlfcn.h>
#include <nnburst.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define CHECK(call)                                                                                   \
    do {                                                                                              \
        int code_ = (call);                                                                           \
        if (code_ != NNBURST_NO_ERROR) {                                                              \
            fprintf(stderr, "%s: %d: %s\n", #call, code_, nnburst_error_message());                   \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

static void print_resident(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            printf("%ld\n", strtol(line + 6, NULL, 10));
        }
    }
    fclose(status);
}
"""

#: `ready(address)`: a request of network "add" that is bound and has run once.
READY = r"""
static nnburst_device *device;
static nnburst_model *model;
static nnburst_burst *burst;
static nnburst_request *request;

static void ready(const char *address) {
    CHECK(nnburst_connect(address, 0, 60 * SECOND, &device));
    CHECK(nnburst_open_model(device, "add", 0, 60 * SECOND, &model));
    CHECK(nnburst_open_burst(model, NULL, 0, 60 * SECOND, &burst));
    CHECK(nnburst_create_request(burst, &request));
    CHECK(nnburst_bind(request));
    CHECK(nnburst_run(request, 60 * SECOND));
}
"""

#: What a thread does between `armed = 1` and `armed = 0`: allocations, locks and system calls are counted.
#: The kernel gives system calls outside of one section of the program to a signal handler, which notes and
#: makes them.
TRAPS = r"""
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

#define MOST 64
static volatile char armed; /* read by the kernel: 0 lets system calls pass, 1 traps them */
static volatile unsigned allocations, locks, calls;
static volatile long numbers[MOST], operations[MOST]; /* of each, and its second argument */

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t size) { allocations += armed; return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { allocations += armed; return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { allocations += armed; return __libc_realloc(old, size); }
void free(void *old) { allocations += armed; __libc_free(old); }

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*next)(pthread_mutex_t *);
    locks += armed;
    if (next == NULL) {
        next = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    return next(mutex);
}

__asm__(".pushsection .passing,\"ax\",@progbits\n"
        ".global passing_begin, passing_end, passing_return, passing_call\n"
        "passing_begin:\n"
        "passing_return: mov $15, %eax\n syscall\n"
        "passing_call: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"
        " mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n ret\n"
        "passing_end:\n"
        ".popsection\n");
extern char passing_begin[], passing_end[];
void passing_return(void);
long passing_call(long number, long a, long b, long c, long d, long e, long f);

static void trapped(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    if (calls < MOST) {
        numbers[calls] = info->si_syscall;
        operations[calls] = registers[REG_RSI];
    }
    calls++;
    registers[REG_RAX] = passing_call(info->si_syscall, registers[REG_RDI], registers[REG_RSI],
                                      registers[REG_RDX], registers[REG_R10], registers[REG_R8],
                                      registers[REG_R9]);
}

static void set_traps(void) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } action = {
        (void *)(uintptr_t)trapped, SA_SIGINFO | 0x04000000, (void *)(uintptr_t)passing_return, 0};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex); /* finds the next one */
    if (syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, 8) != 0 ||
        prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, passing_begin, passing_end - passing_begin,
              &armed) != 0) {
        printf("no traps\n");
        exit(77);
    }
}
"""
