/* Parts of networks that a driver has prepared, and their executions. */
#ifndef NNB_DELEGATE_PARTITION_H
#define NNB_DELEGATE_PARTITION_H

#include "litert_delegate/network.h"

struct nnb_partition;

/* Has the driver prepare nodes that were checked. `*is_refused`: the driver does not take them, and everything else works. */
bool nnb_partition_open(struct nnb_driver *driver, struct tfl_context *context, const struct tfl_partition *given,
                        struct nnb_partition **partition, bool *is_refused, struct nnb_reason *reason);

/* NULL is fine. */
void nnb_partition_close(struct nnb_partition *partition);

/* Whether it was made of just these nodes. */
bool nnb_partition_has(const struct nnb_partition *partition, const struct tfl_ints *nodes);

/* Has the driver prepare again if the inputs have other extents now, and gives the outputs theirs. An output whose extents
 * only an execution finds out becomes dynamic. */
bool nnb_partition_adapt(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason);

/* One execution, from and to the context's tensors. One thread at a time. */
bool nnb_partition_run(struct nnb_partition *partition, struct tfl_context *context, struct nnb_reason *reason);

/* A list of which the partition is a member, the owner's. */
struct nnb_partition **nnb_partition_next(struct nnb_partition *partition);

#endif
