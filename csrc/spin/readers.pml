/* Several readers of an unsynchronized queue sleep on one event flag (event_flag.h: nnb_event_flag_prepare_among): each is
 * woken for every unit. Memory is sequentially consistent here; ring.pml has the fences. A reader that sleeps for ever ends
 * in an invalid state. Seeded bugs: TWO_STEPS clears the bit and counts the look one after the other, so a word comes back
 * that another reader slept on; NO_COUNT counts none. The
 * count is 16 bits wide; here no path has more than MOST looks, so it does not wrap either. */
#define READERS 2
#define UNITS 2
#define BIT 1
#define LOOK 2
#define MOST 12

byte flag;
byte written;
byte looks;
bool asleep[READERS];

inline prepare_among(seen) {
#ifdef NO_COUNT
    atomic { flag = flag & (255 - BIT); seen = flag }
#elif defined(TWO_STEPS)
    flag = flag & (255 - BIT);
    atomic { flag = flag + LOOK; seen = flag }
#else
    atomic { flag = (flag & (255 - BIT)) + LOOK; seen = flag }
#endif
}

active proctype writer() {
    bool was_set;
    do
    :: written < UNITS ->
        written++;
        if
        :: (flag & BIT) == 0 ->
            atomic { was_set = flag & BIT; flag = flag | BIT }
            if
            :: !was_set -> d_step { asleep[0] = false; asleep[1] = false }
            :: else
            fi
        :: else
        fi
    :: else -> break
    od
}

active [READERS] proctype reader() {
    byte read;
    byte seen;
    byte me = _pid - 1; /* the writer is 0 */
    do
    :: read == UNITS || looks == MOST -> break
    :: read < UNITS && written > read -> read++
    :: read < UNITS && written <= read && looks < MOST ->
        looks++;
        prepare_among(seen);
        if
        :: written > read || (seen & BIT) != 0
        :: else ->
            atomic { asleep[me] = (flag == seen) } /* the kernel compares and sleeps as one */
            !asleep[me]
        fi
    od
}
