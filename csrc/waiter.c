#include "waiter.h"

#include "clock.h"
#include "event_flag.h"
#include "trace.h"
#include "trap.h"

#define VOLLEY_POLLS 48u         /* first look: about a microsecond, without a clock */
#define POLLS_PER_CLOCK 16u      /* a clock costs as much as a few polls */
#define LINGER_NS 10000u         /* how long to expect a volley's next call before a planned sleep */
#define DESCHEDULED_NS 50000u    /* a jump of the clock between two looks */
#define WINDOW_MIN_NS 1000u
#define SOON_WINDOWS 2u          /* events that mostly come in so many windows are spun for */

void nnb_waiter_init(struct nnb_waiter *waiter, uint32_t may_spin, uint64_t window_ns) {
    *waiter = (struct nnb_waiter){
        .may_spin = may_spin, .window_ns = window_ns, .window_now_ns = window_ns};
}

void nnb_waiter_call(struct nnb_waiter *waiter, nnb_atomic_u32 *flag) {
    /* SYNC POINT D: the caller's earlier writes are visible to the waiter that sees `attention`. */
    nnb_store_release_u32(&waiter->attention, 1);
    (void)nnb_event_flag_wake(flag, NNB_FMQ_ATTENTION);
}

/* Spins until `until_ns`: READY, ATTENTION, or TIMED_OUT if the time is up or the thread was descheduled.
 * `*now_ns` is the time of the last check. */
static int spin_until(struct nnb_waiter *waiter, struct nnb_ring *ring, uint64_t until_ns,
                      uint64_t *now_ns) {
    uint64_t began = *now_ns;
    int status = NNB_WAIT_TIMED_OUT;
    while (*now_ns < until_ns) {
        int ready = nnb_spin_briefly(ring, POLLS_PER_CLOCK);
        uint64_t now = nnb_now_ns();
        uint64_t jump = now - *now_ns;
        *now_ns = now;
        if (ready) {
            status = NNB_WAIT_READY;
            break;
        }
        if (nnb_waiter_has_attention(waiter)) {
            status = NNB_WAIT_ATTENTION;
            break;
        }
        if (nnb_waiter_peer_changed(waiter)) {
            status = NNB_WAIT_PEER_CHANGED;
            break;
        }
        if (jump > DESCHEDULED_NS) {
            waiter->descheduled++;
            uint64_t half = waiter->window_now_ns / 2;
            waiter->window_now_ns = half > WINDOW_MIN_NS ? half : WINDOW_MIN_NS;
            break;
        }
    }
    waiter->spun_ns += *now_ns - began;
    return status;
}

/* Whether a sleep that ended without an event was the last one. If a peer writes to the flag all the time,
 * the waiter is always awake, and would otherwise never notice that its time is up. */
static bool is_over(bool slept, uint64_t deadline_ns) {
    return slept && nnb_now_ns() >= deadline_ns;
}

/* Whether there is a reason to end a wait; TIMED_OUT if not. */
static int look(struct nnb_waiter *waiter, struct nnb_ring *ring) {
    if (nnb_ring_poll(ring)) {
        return NNB_WAIT_READY;
    }
    if (nnb_waiter_has_attention(waiter)) {
        return NNB_WAIT_ATTENTION;
    }
    return nnb_waiter_peer_changed(waiter) ? NNB_WAIT_PEER_CHANGED : NNB_WAIT_TIMED_OUT;
}

/* Sleeps on the flag until elements can be read, attention is set, or the deadline passes; leaves the bits
 * clear. */
static int sleep_on(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                    uint64_t deadline_ns, bool punctual) {
    const uint32_t bits = NNB_FMQ_NOT_EMPTY | NNB_FMQ_ATTENTION;
    for (bool slept = false;; slept = true) {
        uint32_t seen = 0, was_set;
        if (ring->synchronized) {
            (void)nnb_event_flag_prepare(flag, bits);
        } else {
            seen = nnb_event_flag_prepare_among(flag, bits, &was_set);
        }
        int found = look(waiter, ring);
        if (found != NNB_WAIT_TIMED_OUT || is_over(slept, deadline_ns)) {
            return found;
        }
        NNB_TRAP("wait.looked");
        waiter->sleeps++;
        NNB_TRACE(SLEEP, INSTANT);
        if (ring->synchronized) {
            /* TRUST: the peer can write any value; at worst this sleep lasts until the deadline. */
            seen = nnb_load_relaxed_u32(flag);
        }
        switch (nnb_event_flag_sleep_beside(flag, seen, bits, deadline_ns, waiter->peer,
                                            waiter->peer_value, punctual)) {
        case NNB_EVENT_FLAG_TIMED_OUT:
            return nnb_ring_poll(ring) ? NNB_WAIT_READY : NNB_WAIT_TIMED_OUT;
        case NNB_EVENT_FLAG_INTERRUPTED:
            return nnb_ring_poll(ring) ? NNB_WAIT_READY : NNB_WAIT_INTERRUPTED;
        default:
            break;
        }
    }
}

/* The same, and sets the bit at the end, since no waiter sleeps any more. A publisher that finds the bit set
 * makes no system call; otherwise a planned sleep would cost the caller one with every event. Not for an
 * unsynchronized queue's reader, since another reader may still sleep. */
static int sleep_until(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                       uint64_t deadline_ns, bool punctual) {
    int status = sleep_on(waiter, ring, flag, deadline_ns, punctual);
    if (ring->synchronized) {
        nnb_event_flag_awake(flag, NNB_FMQ_NOT_EMPTY);
    }
    return status;
}

/* Widens the window a little at every event, even after a sleep: a window that was halved below the caller's
 * gaps would otherwise never catch an event again. */
static void widen(struct nnb_waiter *waiter) {
    uint64_t wider = waiter->window_now_ns + waiter->window_ns / 16;
    waiter->window_now_ns = wider < waiter->window_ns ? wider : waiter->window_ns;
}

/* Notes an event that the waiter noticed at `now_ns`, and returns READY. */
static int met(struct nnb_waiter *waiter, uint64_t now_ns, enum nnb_rhythm_catch how) {
    nnb_rhythm_event(&waiter->rhythm, now_ns, how);
    widen(waiter);
    return NNB_WAIT_READY;
}

static bool come_soon(const struct nnb_waiter *waiter) { return waiter->soon > NNB_ALL / 2; }

uint64_t nnb_waiter_spin_window(const struct nnb_waiter *waiter) {
    return come_soon(waiter) ? SOON_WINDOWS * waiter->window_now_ns : waiter->window_now_ns;
}

void nnb_waiter_note(struct nnb_waiter *waiter, uint64_t waited_ns) {
    if (waited_ns > waiter->window_ns) {
        uint32_t soon = waited_ns <= SOON_WINDOWS * waiter->window_ns ? NNB_ALL : 0;
        waiter->soon += (soon >> 3) - (waiter->soon >> 3);
    }
}

/* Follows the plan: spins shortly, sleeps through the gap, and spins around the due time. TIMED_OUT if the
 * event did not come by then. */
static int follow_plan(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                       uint64_t deadline_ns, uint64_t wake_at_ns, uint64_t until_ns,
                       uint64_t *now_ns) {
    uint64_t linger = *now_ns + (come_soon(waiter) ? nnb_waiter_spin_window(waiter) : LINGER_NS);
    uint64_t first = linger < wake_at_ns ? linger : until_ns;
    int status = spin_until(waiter, ring, first < deadline_ns ? first : deadline_ns, now_ns);
    if (status == NNB_WAIT_READY) {
        return met(waiter, *now_ns, NNB_CAUGHT_SPINNING);
    }
    if (status != NNB_WAIT_TIMED_OUT || *now_ns >= deadline_ns || *now_ns >= until_ns) {
        return status;
    }
    if (*now_ns < wake_at_ns) {
        uint64_t wake_at = wake_at_ns < deadline_ns ? wake_at_ns : deadline_ns;
        status = sleep_until(waiter, ring, flag, wake_at, true);
        *now_ns = nnb_now_ns();
        if (status == NNB_WAIT_READY) {
            return met(waiter, *now_ns, NNB_CAUGHT_ASLEEP_EARLY);
        }
        if (status != NNB_WAIT_TIMED_OUT || *now_ns >= deadline_ns) {
            return status;
        }
        nnb_rhythm_overslept(&waiter->rhythm, *now_ns - wake_at);
    }
    status = spin_until(waiter, ring, until_ns < deadline_ns ? until_ns : deadline_ns, now_ns);
    return status == NNB_WAIT_READY ? met(waiter, *now_ns, NNB_CAUGHT_SPINNING) : status;
}

bool nnb_waiter_cpu_is_contended(struct nnb_waiter *waiter, uint64_t now_ns) {
    if (waiter->contention.until_ns != 0 && now_ns >= waiter->contention.until_ns) {
        nnb_cpu_contention_check(&waiter->contention, now_ns);
    }
    return waiter->contention.until_ns != 0;
}

int nnb_wait_readable(struct nnb_waiter *waiter, struct nnb_ring *ring, nnb_atomic_u32 *flag,
                      uint64_t deadline_ns) {
    if (nnb_ring_poll(ring)) {
        return NNB_WAIT_READY;
    }
    enum nnb_rhythm_catch asleep = NNB_CAUGHT_UNPLANNED;
    uint64_t now = 0;
    uint64_t began = 0;
    if (nnb_waiter_spins(waiter) && waiter->window_ns != 0 && nnb_spin_briefly(ring, VOLLEY_POLLS)) {
        return NNB_WAIT_READY;
    }
    if (waiter->may_spin && waiter->window_ns != 0 && !nnb_waiter_cpu_is_contended(waiter, now = nnb_now_ns())) {
        uint64_t wake_at;
        uint64_t until;
        int status;
        began = now;
        /* A window that covers the gap anyway needs no plan. */
        if (waiter->rhythm.period_ns > nnb_waiter_spin_window(waiter) &&
            nnb_rhythm_plan(&waiter->rhythm, now, &wake_at, &until)) {
            status = follow_plan(waiter, ring, flag, deadline_ns, wake_at, until, &now);
            asleep = NNB_CAUGHT_ASLEEP_LATE;
        } else {
            uint64_t window = nnb_deadline_after(now, nnb_waiter_spin_window(waiter));
            status = spin_until(waiter, ring, window < deadline_ns ? window : deadline_ns, &now);
            if (status == NNB_WAIT_READY) {
                (void)met(waiter, now, NNB_CAUGHT_SPINNING);
            }
        }
        if (status == NNB_WAIT_READY) {
            nnb_waiter_note(waiter, now - began);
        }
        if (status != NNB_WAIT_TIMED_OUT) {
            return status;
        }
        if (now >= deadline_ns) {
            return look(waiter, ring);
        }
        nnb_cpu_contention_check(&waiter->contention, now);
    }
    int status = sleep_until(waiter, ring, flag, deadline_ns, false);
    if (status != NNB_WAIT_READY || !waiter->may_spin) {
        return status;
    }
    now = nnb_now_ns();
    if (began != 0) {
        nnb_waiter_note(waiter, now - began);
    }
    return met(waiter, now, asleep);
}

int nnb_wait_writable(struct nnb_waiter *waiter, struct nnb_ring *ring, uint64_t count,
                      nnb_atomic_u32 *flag, uint64_t deadline_ns) {
    const uint32_t bits = NNB_FMQ_NOT_FULL | NNB_FMQ_WRITER_ATTENTION;
    for (bool slept = false;; slept = true) {
        (void)nnb_event_flag_prepare(flag, bits);
        if (nnb_ring_available_to_write(ring) >= count || ring->corrupted) {
            return NNB_WAIT_READY;
        }
        if (nnb_waiter_has_attention(waiter)) {
            return NNB_WAIT_ATTENTION;
        }
        if (nnb_waiter_peer_changed(waiter)) {
            return NNB_WAIT_PEER_CHANGED;
        }
        if (is_over(slept, deadline_ns)) {
            return NNB_WAIT_TIMED_OUT;
        }
        /* TRUST: as in sleep_on. */
        switch (nnb_event_flag_sleep_beside(flag, nnb_load_relaxed_u32(flag), bits, deadline_ns,
                                            waiter->peer, waiter->peer_value, false)) {
        case NNB_EVENT_FLAG_TIMED_OUT: /* a reader need not announce that it has read (NNAPI: read) */
            return nnb_ring_available_to_write(ring) >= count ? NNB_WAIT_READY : NNB_WAIT_TIMED_OUT;
        case NNB_EVENT_FLAG_INTERRUPTED:
            return NNB_WAIT_INTERRUPTED;
        default:
            break;
        }
    }
}
