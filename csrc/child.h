/* Starts a process by posix_spawn, with descriptors at the numbers that the process expects.
 *
 * The caller is stopped until the new process runs its program (vfork), which lasts until the kernel gives
 * that process a core. So this is called without the interpreter's lock. */
#ifndef NNB_CHILD_H
#define NNB_CHILD_H

#include <stdint.h>

struct nnb_spawn {
    const char *path;
    char *const *arguments;   /* ends with NULL */
    char *const *environment; /* ends with NULL */
    const int32_t *source;      /* descriptors of this process, each unlike all of `target` */
    const int32_t *target;        /* what they are in the new one */
    uint32_t count;
    const int32_t *close; /* descriptors that the new process would inherit and must not */
    uint32_t close_count;
    int32_t pid; /* of the new process */
};

/* Returns 0, or an errno if there is no process. SIGPIPE and SIGXFSZ, which Python ignores, are set to the
 * default. */
int nnb_spawn(struct nnb_spawn *spawn);

#endif
