#include "cpu_contention.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_EVERY_NS 1000000u /* a look costs 0.2 % of it */
#define PAUSE_MIN_NS 4000000u
#define PAUSE_MAX_NS 256000000u
#define DELAY_MIN_NS 50000u    /* less is what any wake-up costs */
#define SCARCE_SHARE 2u        /* waited for a core for 1/2 of the time on it, or longer */

void nnb_cpu_contention_update(struct nnb_cpu_contention *contention, uint64_t now_ns,
                               int32_t thread, uint64_t run_ns, uint64_t delay_ns) {
    bool known = contention->thread == thread && run_ns >= contention->run_ns &&
                 delay_ns >= contention->delay_ns;
    uint64_t ran = run_ns - contention->run_ns;
    uint64_t waited = delay_ns - contention->delay_ns;
    contention->thread = thread;
    contention->run_ns = run_ns;
    contention->delay_ns = delay_ns;
    contention->looked_ns = now_ns;
    if (!known) {
        return;
    }
    uint64_t pause = contention->pause_ns;
    if (waited >= DELAY_MIN_NS && waited >= ran / SCARCE_SHARE) {
        pause = pause == 0 ? PAUSE_MIN_NS : 2 * pause;
        contention->pause_ns = pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
        contention->until_ns = now_ns + contention->pause_ns;
        contention->pauses++;
    } else {
        contention->pause_ns = pause > PAUSE_MIN_NS ? pause / 2 : 0;
        contention->until_ns = 0;
    }
}

/* Reads the next number of a line and moves *text past it. */
static uint64_t number(char **text) { return strtoull(*text, text, 10); }

void nnb_cpu_contention_check(struct nnb_cpu_contention *contention, uint64_t now_ns) {
    if (now_ns < contention->looked_ns + LOOK_EVERY_NS) {
        return;
    }
    char counts[96]; /* three numbers: time on a core, time without one, slices */
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, counts, sizeof counts - 1);
    if (file >= 0) {
        (void)close(file);
    }
    if (length <= 0) {
        contention->until_ns = 0;
        /* The kernel does not count, or there is no /proc: check rarely. */
        contention->looked_ns = now_ns + PAUSE_MAX_NS;
        return;
    }
    counts[length] = '\0';
    char *text = counts;
    uint64_t run = number(&text);
    uint64_t delay = number(&text);
    nnb_cpu_contention_update(contention, now_ns, (int32_t)syscall(SYS_gettid), run, delay);
}
