/* Hosts executors in C (nnburst/executor.h) in the driver: loads them, passes arguments to them, checks their
 * results. 
 * Everything that a library returns is checked before use: statuses, shapes of outputs, and the bytes that it
 * saves. Arguments that the library cannot use in place are copied before and after each run. */
#ifndef NNB_EXECUTOR_H
#define NNB_EXECUTOR_H

#include <stdint.h>

#include <nnburst/executor.h>

/* The header's function for one execution, which the burst's loop calls. */
typedef int32_t (*nnb_run)(nnbx_execution *, const struct nnbx_run *, struct nnbx_outcome *);

/* An execution without a deadline that has nothing to report yet. */
#define NNB_PLAIN_RUN(is_measured)                                                                             \
    ((struct nnbx_run){.size = sizeof(struct nnbx_run),                                                  \
                          .deadline_ns = NNBX_NO_DEADLINE,                                                  \
                          .loop_timeout_ns = NNB_DEFAULT_LOOP_TIMEOUT_NS,                                      \
                          .measure = (is_measured)})
#define NNB_PLAIN_OUTCOME(text)                                                                                \
    ((struct nnbx_outcome){.size = sizeof(struct nnbx_outcome),                                          \
                              .device_ns = NNBX_NOT_AVAILABLE,                                              \
                              .driver_ns = NNBX_MEASURED,                                                   \
                              .message = (text)})
#define NNB_DEFAULT_LOOP_TIMEOUT_NS 2000000000u

/* Opens a library and gets its functions: a table of this header's size, in which functions that the library
 * lacks are NULL. Returns NULL after a failure, with the reason in `message`. The library stays loaded. */
const struct nnburst_executor *nnb_executor_load(const char *path, char *message);

/* The functions of the null executor, which computes nothing (null_executor.c), to measure the header's own
 * cost. */
const struct nnburst_executor *nnb_null_executor(void);

/* Initialises a description with the defaults that the header gives for its members. */
void nnb_executor_describe_nothing(struct nnbx_description *);

/* The shapes that an output may get. `element_bytes` is 0 if not known; `is_scalar`: the rank is 0. */
struct nnb_output_rule {
    uint64_t element_bytes;
    uint32_t is_scalar;
};

struct nnb_hosted;

/* Binds a request. Arguments that are not aligned, or have less padding than `behind` (for each argument, the
 * bytes that may be read after it), are copied. Returns NULL after a failure, with a status and the reason in
 * `message`. */
struct nnb_hosted *nnb_hosted_bind(const struct nnburst_executor *, nnbx_prepared *,
                                   const struct nnbx_request *, const struct nnb_output_rule *rules,
                                   const uint64_t *behind, uint32_t alignment, uint32_t padding,
                                   int32_t *status, char *message);
void nnb_hosted_free(struct nnb_hosted *);

/* An nnb_run; `hosted` is a struct nnb_hosted *. Shapes are stored in memory of `hosted`, whatever `outcome`
 * had. */
int32_t nnb_hosted_run(nnbx_execution *hosted, const struct nnbx_run *, struct nnbx_outcome *);

/* The bytes that one run copies because the executor cannot use arguments in place. */
uint64_t nnb_hosted_copied_bytes(const struct nnb_hosted *);

/* The files that an executor saves, each kind in one piece of memory. */
struct nnb_saved {
    uint8_t *bytes[2]; /* program, constants */
    uint64_t counts[2];
};

/* Has a model saved, with at most `most` bytes of a kind; returns a status. The caller always calls
 * `nnb_saved_free`. */
int32_t nnb_executor_save(const struct nnburst_executor *, nnbx_prepared *, uint64_t most, struct nnb_saved *);
void nnb_saved_free(struct nnb_saved *);

#endif
