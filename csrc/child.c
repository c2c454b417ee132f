#include "child.h"

#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/types.h>

static int describe(const struct nnb_spawn *spawn, posix_spawn_file_actions_t *actions) {
    int failed = 0;
    for (uint32_t i = 0; failed == 0 && i < spawn->count; i++) {
        /* The copy never has close-on-exec, even if the original has it. */
        failed = posix_spawn_file_actions_adddup2(actions, spawn->source[i], spawn->target[i]);
    }
    for (uint32_t i = 0; failed == 0 && i < spawn->close_count; i++) {
        failed = posix_spawn_file_actions_addclose(actions, spawn->close[i]);
    }
    return failed;
}

static int reset_signals(posix_spawnattr_t *attributes) {
    sigset_t ignored;
    (void)sigemptyset(&ignored);
    (void)sigaddset(&ignored, SIGPIPE);
    (void)sigaddset(&ignored, SIGXFSZ);
    int failed = posix_spawnattr_setsigdefault(attributes, &ignored);
    return failed != 0 ? failed : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF);
}

int nnb_spawn(struct nnb_spawn *spawn) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) {
        return failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = describe(spawn, &actions);
        if (failed == 0) {
            failed = reset_signals(&attributes);
        }
        if (failed == 0) {
            pid_t pid = -1;
            failed = posix_spawn(&pid, spawn->path, &actions, &attributes, spawn->arguments,
                                 spawn->environment);
            spawn->pid = (int32_t)pid;
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}
