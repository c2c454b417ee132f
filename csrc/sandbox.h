/* What a worker gives up before it reads from its client: new privileges, other programs, files, sockets. */
#ifndef NNB_SANDBOX_H
#define NNB_SANDBOX_H

/* Steps that are in force, or'ed. */
enum {
    NNB_SANDBOX_NO_NEW_PRIVILEGES = 1,
    NNB_SANDBOX_LANDLOCK = 2, /* no file is opened for writing, made, removed or executed */
    NNB_SANDBOX_SECCOMP = 4,  /* no other programs, processes' memory, sockets or kernel interfaces */
};

/* Puts the calling thread, which must be the only one, into the sandbox for good; its children are in it
 * too. `writable`, if not NULL, is a directory below which files may still be made and written. `nodes`, which ends
 * with NULL, are device nodes that may still be opened for writing and be sent ioctls.
 *
 * Returns the steps that the kernel has, or a negative errno if one that it has was refused. */
int nnb_sandbox_enter(const char *writable, const char *const *nodes);

#endif
