#include "rhythm.h"

enum {
    STEADY_AFTER = 4,      /* events that must keep a period before it is relied on */
    RELEARN_AFTER = 3,     /* strays that are alike after which their gap is the period */
    FORGET_AFTER = 16,     /* strays in a row after which the period is forgotten */
    SLOWER_AFTER = 4,      /* events in a row that left beats out: the caller has become slower */
    MULTIPLES = 8,         /* beats that may be left out without losing the rhythm */
    TOLERANCE_SHARE = 8,   /* an event keeps the period within 1/8 of it */
    STEP_SHARE = 64,       /* a miss moves lead or tail by 1/64 of the period */
    MISS_RATE = 50,        /* one event in so many is missed on each side in the long run */
    LEAD_LIMIT_SHARE = 5,  /* lead is at most 1/5 of the period, tail 1/20: together 25 % */
    TAIL_LIMIT_SHARE = 20,
    ANSWER_LIMIT_SHARE = 2, /* of short periods, if an answer is awaited: see ANSWER_LIMIT_NS */
};

#define PERIOD_MIN_NS 100000u       /* shorter gaps are cheaper to spin through */
#define LATENCY_MAX_NS 500000u      /* longer is not wake-up latency */
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
    rhythm->alike = 0;
    rhythm->other_ns = 0;
    rhythm->gap_error_ns = 0;
    rhythm->beat_error_ns = 0;
}

void nnb_rhythm_overslept(struct nnb_rhythm *rhythm, uint64_t late_ns) {
    if (late_ns > LATENCY_MAX_NS) {
        return; /* stopped or starved: not a wake-up */
    }
    rhythm->wake_latency_ns += (late_ns >> 3) - (rhythm->wake_latency_ns >> 3);
}

/* How well an event fits a number of beats after a moment. */
struct fit {
    uint64_t beats;
    uint64_t error_ns; /* from the beat that is nearest */
    bool keeps;        /* near enough to be that beat */
};

static struct fit fit_to(uint64_t gap_ns, uint64_t period_ns) {
    if (period_ns == 0) {
        return (struct fit){.beats = 0, .error_ns = 0, .keeps = false};
    }
    struct fit found = {.beats = (gap_ns + period_ns / 2) / period_ns};
    found.error_ns = difference(gap_ns, found.beats * period_ns);
    found.keeps = found.beats != 0 && found.beats <= MULTIPLES &&
                  found.error_ns <= period_ns / TOLERANCE_SHARE;
    return found;
}

/* A value moved by `by_ns`, up or down. */
static uint64_t moved(uint64_t value, bool up, uint64_t by_ns) {
    return up ? value + by_ns : value - (by_ns < value ? by_ns : value);
}

/* Follows a caller that keeps to moments of its own, whenever a call of it came: one late call, which the host
 * of a virtual machine can cause at any time, moves neither period nor beat by more than a step. */
static void follow_beat(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t beats) {
    uint64_t period = rhythm->period_ns;
    uint64_t expected = rhythm->beat_ns + beats * period;
    uint64_t step = at_most(difference(event_ns, expected), period / STEP_SHARE);
    rhythm->beat_ns = moved(expected, event_ns > expected, step / 4);
    rhythm->period_ns = moved(period, event_ns > expected, step / 16);
}

/* Follows a caller that pauses for as long after each call. */
static void follow_gap(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t measured_ns) {
    uint64_t period = rhythm->period_ns;
    rhythm->beat_ns = event_ns;
    rhythm->period_ns = moved(period, measured_ns > period, difference(measured_ns, period) / 8);
}

/* Whether the caller keeps to beats, as far as the latest events say. */
static bool keeps_beat(const struct nnb_rhythm *rhythm) {
    return !rhythm->answers && rhythm->beat_error_ns < rhythm->gap_error_ns;
}

/* Notes a gap that the period does not explain. True if it is a new period: several of the like came, or none of
 * so many events kept the old one. */
static bool is_new_period(struct nnb_rhythm *rhythm, uint64_t gap_ns) {
    bool alike = difference(gap_ns, rhythm->other_ns) <= rhythm->other_ns / TOLERANCE_SHARE;
    rhythm->alike = alike ? rhythm->alike + 1 : 1;
    rhythm->other_ns = gap_ns;
    return rhythm->alike >= RELEARN_AFTER || rhythm->strays >= FORGET_AFTER;
}

/* Whether the event is one period after the last one, or a few with beats left out, or comes on a beat; then
 * the period follows it. */
static bool keeps_period(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t gap_ns) {
    uint64_t period = rhythm->period_ns;
    uint64_t since = event_ns > rhythm->beat_ns ? event_ns - rhythm->beat_ns : 0;
    struct fit gap = fit_to(gap_ns, period);
    struct fit beat = fit_to(since, period);
    rhythm->gap_error_ns += (gap.error_ns >> 3) - (rhythm->gap_error_ns >> 3);
    rhythm->beat_error_ns += (beat.error_ns >> 3) - (rhythm->beat_error_ns >> 3);
    rhythm->skips = gap.keeps && gap.beats > 1 ? rhythm->skips + 1 : 0;
    if (rhythm->skips >= SLOWER_AFTER) {
        return false;
    }
    if (gap.keeps) {
        rhythm->alike = 0;
    } else if (period == 0 || is_new_period(rhythm, gap_ns)) {
        rhythm->skips = SLOWER_AFTER; /* learn it */
        return false;
    }
    if (beat.keeps && !rhythm->answers && (keeps_beat(rhythm) || !gap.keeps)) {
        follow_beat(rhythm, event_ns, beat.beats);
        return true;
    }
    if (gap.keeps) {
        follow_gap(rhythm, event_ns, gap_ns / gap.beats);
    }
    return gap.keeps;
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
    if (!keeps_period(rhythm, event, gap)) {
        rhythm->strays++;
        if (rhythm->skips >= SLOWER_AFTER) {
            start(rhythm, gap);
            rhythm->beat_ns = event;
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
    uint64_t period = rhythm->period_ns;
    uint64_t due = rhythm->last_ns + period;
    if (keeps_beat(rhythm)) { /* the first beat after the last event, which may have been an early one itself */
        uint64_t from = rhythm->last_ns + period / TOLERANCE_SHARE;
        uint64_t beats = from > rhythm->beat_ns ? (from - rhythm->beat_ns) / period + 1 : 1;
        due = rhythm->beat_ns + beats * period;
    }
    *wake_at_ns = due - rhythm->lead_ns;
    *until_ns = due + rhythm->tail_ns;
    return *until_ns > now_ns;
}
