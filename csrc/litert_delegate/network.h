/* Writes a part of the engine's network as the bytes of a .tflite file. */
#ifndef NNB_DELEGATE_NETWORK_H
#define NNB_DELEGATE_NETWORK_H

#include "litert_delegate/flat.h"
#include "litert_delegate/tensors.h"
#include "plugin/driver.h"

/* A file, and the engine's tensors that are its inputs and outputs.
 *
 * An output without extents is a scalar, or one whose rank only a run finds out. A driver's output has at least
 * one extent, so both would be one element along one axis. Such outputs are expanded: the file's has an extent of
 * 1 before those of the tensor, which an operator EXPAND_DIMS puts there. */
struct nnb_network {
    struct nnb_flat file;
    size_t file_bytes; /* as it was written first; later extents lie behind */
    int *nodes;
    int *inputs;
    int *outputs;
    bool *are_expanded; /* of each output: see above */
    size_t *input_tables; /* where each is in the file */
    size_t *output_tables;
    size_t node_count;
    size_t input_count;
    size_t output_count;
};

/* Whether a node can be written: its operator, its options and all its tensors. The reason names the node. */
bool nnb_node_check(struct tfl_context *context, int index, struct nnb_reason *reason);

/* Writes nodes that were checked. The caller frees `*network`, even after a failure. */
bool nnb_network_write(struct tfl_context *context, const struct tfl_partition *partition, struct nnb_network *network,
                       struct nnb_reason *reason);
void nnb_network_free(struct nnb_network *network);

/* Rewrites a file that was written before with the present extents of its inputs and outputs. */
bool nnb_network_rewrite(struct nnb_network *network, const struct tfl_context *context, const void *file,
                         enum nnb_role output, struct nnb_reason *reason);

/* Whether the network was made from exactly these nodes. */
bool nnb_network_has(const struct nnb_network *network, const struct tfl_ints *nodes);

#endif
