/* Learns when the next event is due, so that a waiter can sleep until shortly before the event and spin only
 * around its time.
 *
 *      event                       wake_at      due          until
 *        |------- sleep ---------------|--- spin --|--- spin ---|--- sleep until woken
 *                                      <-- lead -->  <- tail -->
 *
 * `lead` and `tail` adapt to the caller's jitter and this machine's wake-up latency: each grows by a large
 * step when an event was missed on its side, and shrinks by a small step when the event was caught. So about
 * one event in sixty is missed on each side, as long as spinning keeps to its budget: at most about 11 % of a
 * core at 1 kHz and 4 % at 100 Hz. Beyond it the lead becomes shorter, or the tail if too many events come
 * after it. A sleep ends a wake-up latency before the lead begins.
 * A caller without a period seems to have one by chance now and then. So there is a plan only if plans have
 * met one event in five lately, or if most events keep the period; otherwise each of many such callers would
 * spin up to the budget. All functions only compute on private memory.
 *
 * For an answer the time of the question is also known. There the period is the duration until an answer,
 * even if the questions are irregular, and spinning before an answer delays no caller. */
#ifndef NNB_RHYTHM_H
#define NNB_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

/* Some callers call at fixed times (beats), others pause for the same time after each call. After a late
 * call, the next call of the former comes at its fixed time, that of the latter a period later. The
 * prediction that was better lately decides which kind a caller is. */

/* The state of the waiter when an event came. */
enum nnb_rhythm_catch {
    NNB_CAUGHT_SPINNING,     /* was looking when it came */
    NNB_CAUGHT_ASLEEP_EARLY, /* came before wake_at */
    NNB_CAUGHT_ASLEEP_LATE,  /* came after until */
    NNB_CAUGHT_UNPLANNED,    /* there was no plan */
};

enum { NNB_ALL = 65536 }; /* a share of 1 */

struct nnb_rhythm {
    uint64_t last_ns; /* latest event, or question; 0 before the first */
    uint64_t period_ns;
    uint64_t beat_ns;       /* when the latest beat was due, as far as the events that kept the period say */
    uint64_t gap_error_ns;  /* how far events are from a period after the last one, averaged */
    uint64_t beat_error_ns; /* how far they are from a beat, likewise */
    uint64_t other_ns;      /* the latest gap that was not a period */
    uint64_t lead_ns;
    uint64_t tail_ns;
    uint64_t lead_most_ns;    /* the lead that the budget for spinning has room for */
    uint64_t spun_ns;         /* how long is spun for an event, averaged */
    uint64_t wasted_ns;       /* the part of it that is spun for events that come later, averaged */
    uint64_t wake_latency_ns; /* how late a timed sleep ends here, averaged */
    uint32_t steady;          /* consecutive events that kept the period */
    uint32_t strays;          /* consecutive events that did not */
    uint32_t alike;           /* consecutive gaps that were not a period, but like each other */
    uint32_t followed;        /* beats followed since the period was learned */
    uint32_t off_beat;        /* consecutive events off the beat */
    uint32_t skips;           /* consecutive events that left beats out */
    uint32_t missed;          /* share of planned events that no spinner met, averaged: NNB_ALL is each */
    uint32_t strayed;         /* share of events that did not keep the period, likewise */
    uint32_t answers;         /* the events answer questions: lead and tail may be longer */
    uint64_t met_awake;       /* statistics: events met by a spinner; those of volleys are not counted */
    uint64_t met_asleep;      /* those that had to wake the waiter */
    uint64_t outliers;        /* events that kept no period and moved none */
    uint64_t found;           /* times that a period became one to rely on */
    uint64_t lost;            /* times that it was given up for another one */
};

/* Notes that a question goes out whose answer is the next event. */
void nnb_rhythm_question(struct nnb_rhythm *rhythm, uint64_t now_ns);

/* Notes an event, which the waiter noticed at `now_ns`. */
void nnb_rhythm_event(struct nnb_rhythm *rhythm, uint64_t now_ns, enum nnb_rhythm_catch how);

/* Notes that a timed sleep ended `late_ns` after its time. */
void nnb_rhythm_overslept(struct nnb_rhythm *rhythm, uint64_t late_ns);

/* Computes when to stop sleeping and until when to spin, if a steady period is known and the next event lies
 * ahead. False if there is no plan. */
bool nnb_rhythm_plan(const struct nnb_rhythm *rhythm, uint64_t now_ns, uint64_t *wake_at_ns,
                     uint64_t *until_ns);

#endif
