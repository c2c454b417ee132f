#include "rhythm.h"

enum {
    STEADY_AFTER = 4,      /* events that must keep a period before it is relied on */
    RELEARN_AFTER = 3,     /* strays that are alike after which their gap is the period */
    FORGET_AFTER = 16,     /* strays in a row after which the period is forgotten */
    SLOWER_AFTER = 4,      /* events in a row that left beats out: the caller has become slower */
    ANCHOR_AFTER = 3,      /* events in a row off the beat after which the beats begin anew */
    SETTLED_AFTER = 32,    /* beats that were followed, after which each moves the next one less */
    MULTIPLES = 8,         /* beats that may be left out without losing the rhythm */
    TOLERANCE_SHARE = 8,   /* an event keeps the period within 1/8 of it */
    STEP_SHARE = 64,       /* a miss moves lead or tail by 1/64 of the period */
    MISS_RATE = 64,        /* one event in so many is missed on each side in the long run */
    LEAD_LIMIT_SHARE = 8,  /* lead is at most 1/8 of the period, tail 1/5, together 1/4 */
    TAIL_LIMIT_SHARE = 5,
    BOTH_LIMIT_SHARE = 4,
    WASTE_SHARE = 4,       /* of what is spun, a quarter may be for events that come later */
    BUDGET_STEP_SHARE = 8192, /* the lead's room in it changes by 1/8192 of the period */
    BUDGET_SHARE = 32,     /* spun on average is at most BUDGET_NS and 1/32 of the period */
    SPUN_SHARE = 36,       /* of a lead at most SPUN_NS and 1/36 of the period is spun */
    ANSWER_LIMIT_SHARE = 2, /* of short periods, if an answer is awaited: see ANSWER_LIMIT_NS */
    MISSED_TOO_OFTEN = NNB_ALL / 5 * 4,
    STRAYED_TOO_OFTEN = NNB_ALL / 8 * 3, /* without any rhythm some two thirds of the events stray */
};

#define PERIOD_MIN_NS 100000u       /* shorter gaps are cheaper to spin through */
#define LATENCY_MAX_NS 500000u      /* longer is not wake-up latency */
#define FIRST_LEAD_NS 300000u       /* a few wake-up latencies: too much lasts longer than too little */
#define SPUN_NS 60000u              /* with the share: 9 % of a core at 1 kHz, 3 % at 100 Hz */
#define BUDGET_NS 76000u            /* with the share: 11 % of a core at 1 kHz, 4 % at 100 Hz */
#define USUAL_LATENCY_NS 50000u     /* of a wake-up, until a timed sleep has been seen to end */
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

/* The duration of a wake-up on this machine. */
static uint64_t latency(const struct nnb_rhythm *rhythm) {
    return rhythm->wake_latency_ns != 0 ? rhythm->wake_latency_ns : USUAL_LATENCY_NS;
}

/* The limit of a lead or tail that may be `share` of the period. */
static uint64_t limit(const struct nnb_rhythm *rhythm, uint64_t share) {
    uint64_t usual = rhythm->period_ns / share;
    uint64_t more = at_most(rhythm->period_ns / ANSWER_LIMIT_SHARE, ANSWER_LIMIT_NS);
    return rhythm->answers && more > usual ? more : usual;
}

/* A lead is spun in every period, so it has a budget beyond the wake-up itself; a tail only if an event is late. */
static uint64_t lead_limit(const struct nnb_rhythm *rhythm) {
    uint64_t most = limit(rhythm, LEAD_LIMIT_SHARE);
    uint64_t spun = SPUN_NS + rhythm->period_ns / SPUN_SHARE;
    return rhythm->answers ? most : at_most(spun, most);
}

static uint64_t tail_limit(const struct nnb_rhythm *rhythm) {
    uint64_t most = limit(rhythm, TAIL_LIMIT_SHARE);
    uint64_t left = rhythm->period_ns / BOTH_LIMIT_SHARE - rhythm->lead_ns;
    return rhythm->answers ? most : at_most(most, left);
}

/* The average time that may be spun for an event. */
static uint64_t budget(const struct nnb_rhythm *rhythm) {
    return BUDGET_NS + rhythm->period_ns / BUDGET_SHARE;
}

static void start(struct nnb_rhythm *rhythm, uint64_t period_ns) {
    rhythm->lost += rhythm->steady == STEADY_AFTER ? 1 : 0;
    rhythm->period_ns = period_ns;
    rhythm->lead_ns = at_most(lead_limit(rhythm), FIRST_LEAD_NS);
    rhythm->tail_ns = at_most(tail_limit(rhythm), FIRST_LEAD_NS);
    rhythm->lead_most_ns = lead_limit(rhythm);
    rhythm->spun_ns = budget(rhythm);
    rhythm->wasted_ns = 0;
    rhythm->steady = 0;
    rhythm->strays = 0;
    rhythm->skips = 0;
    rhythm->alike = 0;
    rhythm->followed = 0;
    rhythm->off_beat = 0;
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

/* The degree to which an event fits a whole number of periods after a time. */
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

/* Whether the caller keeps fixed times (beats), judged by the latest events. */
static bool keeps_beat(const struct nnb_rhythm *rhythm) {
    return !rhythm->answers && rhythm->beat_error_ns <= rhythm->gap_error_ns;
}

/* Follows a caller that calls at fixed times, independent of its earlier calls. One late call, which the host
 * of a virtual machine can cause at any time, moves neither period nor beat by more than a step. */
static void follow_beat(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t beats) {
    uint64_t period = rhythm->period_ns;
    uint64_t expected = rhythm->beat_ns + beats * period;
    uint64_t step = at_most(difference(event_ns, expected), period / STEP_SHARE);
    bool settled = rhythm->followed >= SETTLED_AFTER;
    rhythm->followed += settled ? 0 : 1;
    rhythm->beat_ns = moved(expected, event_ns > expected, step / (settled ? 8 : 4));
    rhythm->period_ns = moved(period, event_ns > expected, step / (settled ? 64 : 16));
}

/* Follows a caller that pauses for the same time after each call. The beats are followed, too, since they may
 * become the better prediction. */
static void follow_gap(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t measured_ns,
                       const struct fit *beat) {
    uint64_t period = rhythm->period_ns;
    if (beat->keeps && !rhythm->answers) {
        follow_beat(rhythm, event_ns, beat->beats);
    } else if (rhythm->off_beat >= ANCHOR_AFTER || rhythm->answers) {
        rhythm->beat_ns = event_ns;
    }
    if (!keeps_beat(rhythm)) {
        uint64_t step = at_most(difference(measured_ns, period) / 8, period / STEP_SHARE);
        rhythm->period_ns = moved(period, measured_ns > period, step);
    }
}

/* Notes a gap that the period does not explain. True if it becomes the new period: several equal gaps came,
 * or no event kept the old period for long. */
static bool is_new_period(struct nnb_rhythm *rhythm, uint64_t gap_ns) {
    bool alike = difference(gap_ns, rhythm->other_ns) <= rhythm->other_ns / TOLERANCE_SHARE;
    rhythm->alike = alike ? rhythm->alike + 1 : 1;
    rhythm->other_ns = gap_ns;
    return rhythm->alike >= RELEARN_AFTER || rhythm->strays >= FORGET_AFTER;
}

/* Whether the event is one period, or a few periods, after the last one, or comes on a beat; then the period
 * is adapted to it. */
static bool keeps_period(struct nnb_rhythm *rhythm, uint64_t event_ns, uint64_t gap_ns) {
    uint64_t period = rhythm->period_ns;
    uint64_t since = event_ns > rhythm->beat_ns ? event_ns - rhythm->beat_ns : 0;
    struct fit gap = fit_to(gap_ns, period);
    struct fit beat = fit_to(since, period);
    if (difference(gap.error_ns, beat.error_ns) > period / STEP_SHARE) { /* else there is nothing to choose */
        rhythm->gap_error_ns += (gap.error_ns >> 3) - (rhythm->gap_error_ns >> 3);
        rhythm->beat_error_ns += (beat.error_ns >> 3) - (rhythm->beat_error_ns >> 3);
    }
    rhythm->off_beat = beat.keeps ? 0 : rhythm->off_beat + 1;
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
        follow_gap(rhythm, event_ns, gap_ns / gap.beats, &beat);
    }
    return gap.keeps;
}

/* When the next event is due. */
static uint64_t next_due(const struct nnb_rhythm *rhythm) {
    uint64_t period = rhythm->period_ns;
    if (!keeps_beat(rhythm)) {
        return rhythm->last_ns + period;
    }
    /* The first beat after the last event, which may have been an early one itself. */
    uint64_t from = rhythm->last_ns + period / TOLERANCE_SHARE;
    uint64_t beats = from > rhythm->beat_ns ? (from - rhythm->beat_ns) / period + 1 : 1;
    return rhythm->beat_ns + beats * period;
}

/* Averages the spinning for an event, computed from the plan for it. */
static void note_spin(struct nnb_rhythm *rhythm, uint64_t event_ns, enum nnb_rhythm_catch how) {
    uint64_t spun = 0;
    uint64_t wasted = 0;
    if (how == NNB_CAUGHT_UNPLANNED || rhythm->steady < STEADY_AFTER) {
        return;
    }
    if (how == NNB_CAUGHT_ASLEEP_LATE) {
        spun = wasted = rhythm->lead_ns + rhythm->tail_ns;
    } else if (how == NNB_CAUGHT_SPINNING) {
        uint64_t from = next_due(rhythm) - rhythm->lead_ns;
        spun = event_ns > from ? at_most(event_ns - from, rhythm->lead_ns + rhythm->tail_ns) : 0;
    }
    rhythm->spun_ns += (spun >> 8) - (rhythm->spun_ns >> 8);
    rhythm->wasted_ns += (wasted >> 8) - (rhythm->wasted_ns >> 8);
}

/* Averages the shares of planned events that are missed and that stray. Unplanned events do not count. */
static void note_plan(struct nnb_rhythm *rhythm, enum nnb_rhythm_catch how, bool keeps) {
    uint32_t missed = how == NNB_CAUGHT_SPINNING ? 0 : NNB_ALL;
    uint32_t strayed = keeps ? 0 : NNB_ALL;
    if (how != NNB_CAUGHT_UNPLANNED) {
        rhythm->missed += (missed >> 3) - (rhythm->missed >> 3);
    }
    rhythm->strayed += (strayed >> 4) - (rhythm->strayed >> 4);
}

/* Whether plans meet enough events to justify their spinning. */
static bool plans_pay(const struct nnb_rhythm *rhythm) {
    return rhythm->missed <= MISSED_TOO_OFTEN || rhythm->strayed <= STRAYED_TOO_OFTEN;
}

/* Whether spinning exceeds its budget. */
static bool costs_too_much(const struct nnb_rhythm *rhythm) {
    return !rhythm->answers && rhythm->spun_ns > budget(rhythm);
}

/* Whether it is the tail that has to become shorter then. What comes after the tail costs all of the lead and the
 * tail. If that is little of the cost, the lead becomes shorter first: the later a spin begins, the more probable
 * it is that the event comes soon. */
static bool tail_is_to_blame(const struct nnb_rhythm *rhythm) {
    return rhythm->wasted_ns > rhythm->spun_ns / WASTE_SHARE || rhythm->lead_most_ns == 0;
}

/* A lead grows when an event comes before it, as far as the budget has room. */
static void adapt_lead(struct nnb_rhythm *rhythm, bool missed) {
    uint64_t period = rhythm->period_ns;
    uint64_t step = period / BUDGET_STEP_SHARE;
    if (rhythm->answers) {
        rhythm->lead_most_ns = lead_limit(rhythm); /* no budget */
    } else if (!costs_too_much(rhythm)) {
        rhythm->lead_most_ns += step;
    } else if (!tail_is_to_blame(rhythm)) {
        rhythm->lead_most_ns -= at_most(rhythm->lead_most_ns, step);
    }
    rhythm->lead_most_ns = at_most(rhythm->lead_most_ns, lead_limit(rhythm));
    rhythm->lead_ns = adapt(rhythm->lead_ns, missed, period, rhythm->lead_most_ns);
}

/* A tail grows when an event comes after it, unless tails are what costs too much. */
static void adapt_tail(struct nnb_rhythm *rhythm, bool missed) {
    uint64_t period = rhythm->period_ns;
    if (costs_too_much(rhythm) && tail_is_to_blame(rhythm)) {
        rhythm->tail_ns -= at_most(rhythm->tail_ns, period / STEP_SHARE);
    } else {
        rhythm->tail_ns = adapt(rhythm->tail_ns, missed, period, tail_limit(rhythm));
    }
}

void nnb_rhythm_event(struct nnb_rhythm *rhythm, uint64_t now_ns, enum nnb_rhythm_catch how) {
    bool asleep = how != NNB_CAUGHT_SPINNING;
    uint64_t event = now_ns - (asleep ? latency(rhythm) : 0); /* a sleeper meets the event a wake-up later than it came */
    uint64_t gap = event > rhythm->last_ns ? event - rhythm->last_ns : 0;
    bool first = rhythm->last_ns == 0;
    note_spin(rhythm, event, how);
    rhythm->last_ns = event;
    rhythm->met_awake += asleep ? 0 : 1;
    rhythm->met_asleep += asleep ? 1 : 0;
    if (first || gap < PERIOD_MIN_NS || gap > PERIOD_MAX_NS) { /* part of a volley, or a pause: not a period */
        if (how == NNB_CAUGHT_ASLEEP_EARLY) {
            note_plan(rhythm, how, false); /* the caller is faster now, and a plan makes it wake the waiter */
        }
        return;
    }
    bool keeps = keeps_period(rhythm, event, gap);
    note_plan(rhythm, how, keeps);
    if (!keeps) {
        rhythm->strays++;
        rhythm->outliers++;
        if (rhythm->skips >= SLOWER_AFTER) {
            start(rhythm, gap);
            rhythm->beat_ns = event;
        } else if (how == NNB_CAUGHT_ASLEEP_LATE) {
            adapt_tail(rhythm, true);
        }
        return;
    }
    rhythm->strays = 0;
    if (rhythm->steady < STEADY_AFTER) {
        rhythm->steady++;
        rhythm->found += rhythm->steady == STEADY_AFTER ? 1 : 0;
    }
    if (how == NNB_CAUGHT_ASLEEP_EARLY && rhythm->lead_ns >= lead_limit(rhythm)) {
        rhythm->wake_latency_ns = at_most(latency(rhythm) + latency(rhythm) / 16, LATENCY_MAX_NS);
    }
    if (how != NNB_CAUGHT_UNPLANNED) {
        adapt_lead(rhythm, how == NNB_CAUGHT_ASLEEP_EARLY);
        adapt_tail(rhythm, how == NNB_CAUGHT_ASLEEP_LATE);
    }
    /* The period may have become shorter, and both are shares of it. */
    rhythm->lead_ns = at_most(rhythm->lead_ns, lead_limit(rhythm));
    rhythm->tail_ns = at_most(rhythm->tail_ns, tail_limit(rhythm));
}

void nnb_rhythm_question(struct nnb_rhythm *rhythm, uint64_t now_ns) {
    rhythm->last_ns = now_ns;
    rhythm->answers = 1;
}

bool nnb_rhythm_plan(const struct nnb_rhythm *rhythm, uint64_t now_ns, uint64_t *wake_at_ns,
                     uint64_t *until_ns) {
    if (rhythm->steady < STEADY_AFTER || !plans_pay(rhythm)) {
        return false;
    }
    uint64_t due = next_due(rhythm);
    *wake_at_ns = due - rhythm->lead_ns - at_most(latency(rhythm), rhythm->period_ns / 2);
    *until_ns = due + rhythm->tail_ns;
    return *until_ns > now_ns;
}
