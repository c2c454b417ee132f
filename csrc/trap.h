/* Named points at which a test build can be killed or held up; nothing at all in any other build.
 *
 * Built with -DNNBURST_TRAPS, a process kills itself (SIGKILL) when it comes to the point that its environment
 * names: NNBURST_TRAP=ring.write.copied:3 at the third time. The points:
 *
 *   ring.write.claimed    room is claimed, nothing is copied
 *   ring.write.half       a packet that wraps is copied up to the end of the ring
 *   ring.write.copied     everything is copied, nothing is published
 *   ring.write.committed  published, no waiter has been woken
 *   ring.read.copied      copied out, the room not given back
 *   ring.read.released    given back
 *   wait.looked           nothing was there at the last look; about to sleep */
#ifndef NNB_TRAP_H
#define NNB_TRAP_H

#ifdef NNBURST_TRAPS
#define NNB_TRAP(name) nnb_trap(name)

/* What a C test does instead; NULL if it leaves traps to the environment. Set before threads are started. */
extern void (*nnb_trap_hook)(const char *name);

void nnb_trap(const char *name);
#else
#define NNB_TRAP(name) ((void)0)
#endif

#endif
