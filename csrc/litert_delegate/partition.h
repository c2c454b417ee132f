/* Parts of networks that a driver has prepared, and their executions. */
#ifndef NNB_DELEGATE_PARTITION_H
#define NNB_DELEGATE_PARTITION_H

#include "litert_delegate/network.h"

struct nnb_partition;

/* Has the driver prepare nodes that were checked. `*is_refused` is set if the driver refuses only these
 * nodes. */
bool nnb_partition_open(struct nnb_driver *driver, struct tfl_context *context, const struct tfl_partition *given,
                        struct nnb_partition **partition, bool *is_refused, struct nnb_reason *reason);

/* Closes a partition; NULL is allowed. */
void nnb_partition_close(struct nnb_partition *partition);

/* Whether the partition was made from exactly these nodes. */
bool nnb_partition_has(const struct nnb_partition *partition, const struct tfl_ints *nodes);

/* Has the driver prepare again if the inputs have other extents now, and sets the extents of the outputs. An
 * output whose extents only an execution determines becomes dynamic. */
bool nnb_partition_adapt(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason);

/* Executes once, from and to the context's tensors. One thread at a time. */
bool nnb_partition_run(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason);

/* The link to the next partition in a list of the owner. */
struct nnb_partition **nnb_partition_next(struct nnb_partition *partition);

#endif
