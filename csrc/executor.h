/* Executors in C (nnburst/executor.h) on the driver's side: loaded, handed what they compute with, and checked.
 *
 * What a library returns is checked before anything is made of it: its statuses, the shapes of outputs, the bytes
 * that it saves. Arguments that do not lie as it needs them are copied before and after each run. */
#ifndef NNB_EXECUTOR_H
#define NNB_EXECUTOR_H

#include <stdint.h>

#include <nnburst/executor.h>

/* One execution, as the header has it: what the burst's loop calls. */
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

/* Open a library and get its functions: a table of this header's size, whose members that the library does not know
 * are NULL. NULL, and why in `message`. The library stays loaded. */
const struct nnburst_executor *nnb_executor_load(const char *path, char *message);

/* The functions of the executor that does nothing (null_executor.c): what the header costs. */
const struct nnburst_executor *nnb_null_executor(void);

/* The struct in which a description begins: what stands behind its members in the header. */
void nnb_executor_describe_nothing(struct nnbx_description *);

/* What shapes an output may get. `element_bytes` is 0 if it is not known; `is_scalar`: its rank is 0. */
struct nnb_output_rule {
    uint64_t element_bytes;
    uint32_t is_scalar;
};

struct nnb_hosted;

/* Bind a request: arguments that are not aligned, or have less than `behind` (one for each argument: bytes that may be
 * read behind it) of padding, get memory of their own. NULL, with a status, and why in `message`. */
struct nnb_hosted *nnb_hosted_bind(const struct nnburst_executor *, nnbx_prepared *,
                                   const struct nnbx_request *, const struct nnb_output_rule *rules,
                                   const uint64_t *behind, uint32_t alignment, uint32_t padding,
                                   int32_t *status, char *message);
void nnb_hosted_free(struct nnb_hosted *);

/* An nnb_run: `hosted` is a struct nnb_hosted *. Shapes are left in memory of `hosted`, whatever `outcome` had. */
int32_t nnb_hosted_run(nnbx_execution *hosted, const struct nnbx_run *, struct nnbx_outcome *);

/* Bytes that one run copies because arguments do not lie as the executor needs them. */
uint64_t nnb_hosted_copied_bytes(const struct nnb_hosted *);

/* What an executor saves, each kind in one piece of memory. */
struct nnb_saved {
    uint8_t *bytes[2]; /* program, constants */
    uint64_t counts[2];
};

/* Have a model saved, at most `most` bytes of a kind; a status. `nnb_saved_free` in any case. */
int32_t nnb_executor_save(const struct nnburst_executor *, nnbx_prepared *, uint64_t most, struct nnb_saved *);
void nnb_saved_free(struct nnb_saved *);

#endif
