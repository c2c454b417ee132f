/* Restricts a worker before it reads from its client: no new privileges, other programs, files or sockets. */
#ifndef NNB_SANDBOX_H
#define NNB_SANDBOX_H

/* Steps that are in force, or'ed. */
enum {
    NNB_SANDBOX_NO_NEW_PRIVILEGES = 1,
    NNB_SANDBOX_LANDLOCK = 2, /* no file is opened for writing, made, removed or executed */
    NNB_SANDBOX_SECCOMP = 4,  /* no other programs, processes' memory, sockets or kernel interfaces */
};

/* Puts the calling thread, which must be the only one, into the sandbox permanently; its children are in it,
 * too. `writable`, if not NULL, is a directory below which files may still be made and written. `nodes`,
 * which ends with NULL, are device nodes that may still be opened for writing and used with ioctl.
 *
 * Returns the steps that the kernel supports, or a negative errno if it supports a step but refused it. */
int nnb_sandbox_enter(const char *writable, const char *const *nodes);

#endif
