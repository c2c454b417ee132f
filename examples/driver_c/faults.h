/* What a driver can do wrong, on request: tests see that it harms no other client, and that it is found. A vendor's
 * executor has none of this.
 *
 *     --option fault=NAME --option fault_at=N   once, at run N (0 is the first)
 *     --option defect=NAME                      all the time
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <nnburst/executor.h>

#include "accelerator.h"
#include "operations.h"

enum fault { FAULT_NONE, FAULT_ABORT, FAULT_HANG, FAULT_FAIL, FAULT_EXHAUSTED, FAULT_STATUS, FAULT_SHAPES, FAULT_TIMES };

enum defect {
    DEFECT_NONE,
    DEFECT_LAST_ELEMENT,    /* of large outputs it is off by a little */
    DEFECT_WRITES_INPUT,
    DEFECT_RUN_BEFORE,      /* something of the run before is left in outputs */
    DEFECT_EMPTY_RUN,       /* each 500th run writes nothing */
    DEFECT_HALF_PRECISION,  /* results as float16 would have them */
    DEFECT_ZEROED_NAN,      /* what is no number becomes 0 */
    DEFECT_OVERCLAIMS,      /* SQUEEZE is "supported", and not prepared */
    DEFECT_WRONG_OPERATION, /* FLOOR of what SQUEEZE is asked for */
    DEFECT_SUPPORT_CHANGES, /* each 7th answer is another one */
    DEFECT_LEAK,            /* each model leaves memory behind */
    DEFECT_SATURATES,       /* results above 1000 become 1000 */
    DEFECT_SHORT_COPY,      /* the last element of each output is not copied */
    DEFECT_LOW_DIFFERS,     /* models of low priority give other results */
    DEFECT_CACHE_DIFFERS,   /* models from the cache give other results */
    DEFECT_CACHE_LOST,      /* what was saved is never loaded */
    DEFECT_FAR_MISSED,      /* each deadline is missed, however far away it is */
    DEFECT_MEMORY_UNWRITTEN,/* outputs in memory of the device are not computed */
    DEFECT_MEMORY_SHORT,    /* the last element is not copied to memory of the device */
    DEFECT_MEMORY_KEPT,     /* each memory of the device leaves some of the host's behind */
};

struct faults {
    enum fault fault;
    enum defect defect;
    uint64_t at;
    atomic_uint_fast64_t runs;
    atomic_uint_fast64_t answers;
    _Atomic float left; /* the first element of the run before */
};

/* Take an option of faults; false if it is another one. */
bool read_fault(struct faults *, const char *key, const char *value);

#define NO_FAULT (-1)

/* What a run returns instead of running; NO_FAULT if it is to run. */
int32_t fault_now(struct faults *, struct accelerator *, uint64_t deadline_ns, struct nnbx_outcome *);

/* Whether a deadline is missed because there is one. */
bool misses(const struct faults *, uint64_t deadline_ns);

/* Whether a model that was prepared with this priority, or came from the cache, is to give other results. */
bool differs(const struct faults *, int32_t priority, bool is_cached);

bool has(const struct faults *, enum defect);

/* What defects do to results, support and memory. `other` is what `differs` returned. */
void spoil(struct faults *, const struct accelerator_copy *inputs, uint32_t input_count,
           const struct accelerator_copy *outputs, uint32_t output_count, bool other);
bool overclaims(const struct faults *, int32_t operation);
bool pretend(const struct faults *, const struct nnbx_operation *, struct step *);
void change_support(struct faults *, uint8_t *found, uint32_t count);
void keep_memory(const struct faults *, enum defect);

#endif
