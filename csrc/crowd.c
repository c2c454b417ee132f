#include "crowd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_EVERY_NS 1000000u /* a look costs 0.2 % of it */
#define PAUSE_MIN_NS 4000000u
#define PAUSE_MAX_NS 256000000u
#define DELAY_MIN_NS 50000u    /* less is what any wake-up costs */
#define SCARCE_SHARE 2u        /* waited for a core for 1/2 of the time on it, or longer */

void nnb_crowd_note(struct nnb_crowd *crowd, uint64_t now_ns, int32_t thread, uint64_t run_ns,
                    uint64_t delay_ns) {
    bool known = crowd->thread == thread && run_ns >= crowd->run_ns && delay_ns >= crowd->delay_ns;
    uint64_t ran = run_ns - crowd->run_ns;
    uint64_t waited = delay_ns - crowd->delay_ns;
    crowd->thread = thread;
    crowd->run_ns = run_ns;
    crowd->delay_ns = delay_ns;
    crowd->looked_ns = now_ns;
    if (!known) {
        return;
    }
    uint64_t pause = crowd->pause_ns;
    if (waited >= DELAY_MIN_NS && waited >= ran / SCARCE_SHARE) {
        pause = pause == 0 ? PAUSE_MIN_NS : 2 * pause;
        crowd->pause_ns = pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
        crowd->until_ns = now_ns + crowd->pause_ns;
        crowd->pauses++;
    } else {
        crowd->pause_ns = pause > PAUSE_MIN_NS ? pause / 2 : 0;
        crowd->until_ns = 0;
    }
}

/* The next number of a line, in *text, which is moved behind it. */
static uint64_t number(char **text) { return strtoull(*text, text, 10); }

void nnb_crowd_look(struct nnb_crowd *crowd, uint64_t now_ns) {
    if (now_ns < crowd->looked_ns + LOOK_EVERY_NS) {
        return;
    }
    char counts[96]; /* three numbers: time on a core, time without one, slices */
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, counts, sizeof counts - 1);
    if (file >= 0) {
        (void)close(file);
    }
    if (length <= 0) {
        crowd->until_ns = 0;
        crowd->looked_ns = now_ns + PAUSE_MAX_NS; /* the kernel does not count, or there is no /proc: ask rarely */
        return;
    }
    counts[length] = '\0';
    char *text = counts;
    uint64_t run = number(&text);
    uint64_t delay = number(&text);
    nnb_crowd_note(crowd, now_ns, (int32_t)syscall(SYS_gettid), run, delay);
}
