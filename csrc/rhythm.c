#include "rhythm.h"

enum {
    STEADY_AFTER = 4,      /* events that must keep a period before it is relied on */
    RELEARN_AFTER = 3,     /* strays in a row after which the period is forgotten */
    SLOWER_AFTER = 4,      /* events in a row that left beats out: the caller has become slower */
    MULTIPLES = 8,         /* beats that may be left out without losing the rhythm */
    TOLERANCE_SHARE = 8,   /* an event keeps the period within 1/8 of it */
    STEP_SHARE = 64,       /* a miss moves lead or tail by 1/64 of the period */
    MISS_RATE = 20,        /* one event in so many is missed in the long run */
    LEAD_LIMIT_SHARE = 5,  /* lead is at most 1/5 of the period, tail 1/20: together 25 % */
    TAIL_LIMIT_SHARE = 20,
    ANSWER_LIMIT_SHARE = 2, /* of short periods, if an answer is awaited: see ANSWER_LIMIT_NS */
};

#define PERIOD_MIN_NS 100000u       /* shorter gaps are cheaper to spin through */
#define LATENCY_MAX_NS 500000u      /* longer is no wake-up latency */
#define FIRST_LEAD_NS 300000u       /* a few wake-up latencies: too much lasts longer than too little */
#define ANSWER_LIMIT_NS 200000u     /* a few wake-up latencies, which a share of a short period is not */
#define PERIOD_MAX_NS 4000000000u   /* longer ones are not worth a plan */

static uint64_t difference(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

static uint64_t at_most(uint64_t value, uint64_t limit) { return value < limit ? value : limit; }

/* Moves a quantile estimate: up by a step on a miss, down by step/MISS_RATE on a catch. */
static uint64_t adapt(uint64_t value, bool missed, uint64_t period_ns, uint64_t limit) {
    uint64_t step = period_ns / STEP_SHARE;
    uint64_t down = step / MISS_RATE;
    uint64_t moved = missed ? value + step : value - (down < value ? down : value);
    return at_most(moved, limit);
}

/* Most of a lead or tail that may be `share` of the period. */
static uint64_t limit(const struct nnb_rhythm *rhythm, uint64_t share) {
    uint64_t usual = rhythm->period_ns / share;
    uint64_t more = at_most(rhythm->period_ns / ANSWER_LIMIT_SHARE, ANSWER_LIMIT_NS);
    return rhythm->answers && more > usual ? more : usual;
}

static uint64_t lead_limit(const struct nnb_rhythm *rhythm) {
    return limit(rhythm, LEAD_LIMIT_SHARE);
}

static uint64_t tail_limit(const struct nnb_rhythm *rhythm) {
    return limit(rhythm, TAIL_LIMIT_SHARE);
}

static void start(struct nnb_rhythm *rhythm, uint64_t period_ns) {
    rhythm->period_ns = period_ns;
    rhythm->lead_ns = at_most(lead_limit(rhythm), FIRST_LEAD_NS);
    rhythm->tail_ns = at_most(tail_limit(rhythm), FIRST_LEAD_NS);
    rhythm->steady = 0;
    rhythm->strays = 0;
    rhythm->skips = 0;
}

void nnb_rhythm_overslept(struct nnb_rhythm *rhythm, uint64_t late_ns) {
    if (late_ns > LATENCY_MAX_NS) {
        return; /* stopped or starved: not a wake-up */
    }
    rhythm->wake_latency_ns += (late_ns >> 3) - (rhythm->wake_latency_ns >> 3);
}

/* Whether `gap_ns` is one period, or a few with beats left out; then the period follows it. */
static bool keeps_period(struct nnb_rhythm *rhythm, uint64_t gap_ns) {
    uint64_t period = rhythm->period_ns;
    if (period == 0) {
        return false;
    }
    uint64_t beats = (gap_ns + period / 2) / period;
    if (beats == 0 || beats > MULTIPLES ||
        difference(gap_ns, beats * period) > period / TOLERANCE_SHARE) {
        return false;
    }
    rhythm->skips = beats > 1 ? rhythm->skips + 1 : 0;
    if (rhythm->skips >= SLOWER_AFTER) {
        return false;
    }
    uint64_t measured = gap_ns / beats;
    rhythm->period_ns = measured > period ? period + (measured - period) / 8
                                          : period - (period - measured) / 8;
    return true;
}

void nnb_rhythm_event(struct nnb_rhythm *rhythm, uint64_t now_ns, enum nnb_rhythm_catch how) {
    bool asleep = how != NNB_CAUGHT_SPINNING;
    uint64_t latency = asleep ? rhythm->wake_latency_ns : 0;
    uint64_t event = now_ns - latency; /* a sleeper meets the event a wake-up later than it came */
    uint64_t gap = event > rhythm->last_ns ? event - rhythm->last_ns : 0;
    bool first = rhythm->last_ns == 0;
    rhythm->last_ns = event;
    if (first || gap < PERIOD_MIN_NS || gap > PERIOD_MAX_NS) {
        return; /* part of a volley, or a pause: not a period */
    }
    if (!keeps_period(rhythm, gap)) {
        rhythm->strays++;
        if (rhythm->period_ns == 0 || rhythm->strays >= RELEARN_AFTER ||
            rhythm->skips >= SLOWER_AFTER) {
            start(rhythm, gap);
        }
        return;
    }
    rhythm->strays = 0;
    rhythm->steady += rhythm->steady < STEADY_AFTER ? 1 : 0;
    if (how != NNB_CAUGHT_UNPLANNED) {
        uint64_t period = rhythm->period_ns;
        rhythm->lead_ns = adapt(rhythm->lead_ns, how == NNB_CAUGHT_ASLEEP_EARLY, period,
                                lead_limit(rhythm));
        rhythm->tail_ns = adapt(rhythm->tail_ns, how == NNB_CAUGHT_ASLEEP_LATE, period,
                                tail_limit(rhythm));
    }
}

void nnb_rhythm_question(struct nnb_rhythm *rhythm, uint64_t now_ns) {
    rhythm->last_ns = now_ns;
    rhythm->answers = 1;
}

bool nnb_rhythm_plan(const struct nnb_rhythm *rhythm, uint64_t now_ns, uint64_t *wake_at_ns,
                     uint64_t *until_ns) {
    if (rhythm->steady < STEADY_AFTER) {
        return false;
    }
    uint64_t due = rhythm->last_ns + rhythm->period_ns;
    *wake_at_ns = due - rhythm->lead_ns;
    *until_ns = due + rhythm->tail_ns;
    return *until_ns > now_ns;
}
