/* Checks which nodes of the engine's graphs a driver may compute, and writes a graph as the bytes of an .onnx
 * file. */
#ifndef NNB_EP_GRAPH_H
#define NNB_EP_GRAPH_H

#include "onnxruntime_ep/ort.h"
#include "onnxruntime_ep/proto.h"

/* An input or output of a written graph. A driver's outputs have at least one extent, so its scalars look like
 * rows of one element. For each output without a shape the graph has another one, behind all of the engine's, whose
 * value is the rank: an int64. */
struct nnb_border {
    char *name;
    int64_t *dimensions;  /* -1 where they are open */
    const char **symbols; /* of open ones, the engine's: until the graph is written */
    size_t rank;
    int element;
    bool has_shape;
    size_t rank_output; /* of an output without one: the driver's output that has its rank */
};

/* Bytes of a constant outside of the file. */
struct nnb_part {
    const void *data; /* the engine's */
    uint64_t offset;
    size_t bytes;
};

/* A graph as a file, which refers to large constants in another file, "weights". */
struct nnb_written {
    struct nnb_proto file;
    struct nnb_part *parts;
    size_t part_count;
    size_t part_room;
    uint64_t weights_bytes;
    struct nnb_border *inputs;
    struct nnb_border *outputs;
    size_t input_count;
    size_t output_count; /* without ranks */
    size_t rank_count;
};

#define NNB_WEIGHTS "weights"

/* Writes a graph of nodes that can be written; the constants' bytes stay the engine's. The caller frees
 * `*written`, even after a failure. */
ort_status nnb_graph_write(ort_object graph, struct nnb_written *written);
void nnb_written_free(struct nnb_written *written);

/* Whether two are the same file over the same constants. */
bool nnb_written_same(const struct nnb_written *one, const struct nnb_written *other);

/* Copies the constants to their places in the file of weights. */
void nnb_written_copy_weights(const struct nnb_written *written, void *weights);

/* Whether a node can be written, and a driver may have its operator. */
ort_status nnb_node_is_writable(ort_object node, bool *writable);

/* Gets the element type of a value; 0 if it is not a tensor. */
ort_status nnb_value_element(ort_object value, int *element);

/* Gets the extents of a tensor's type, which the caller frees, even after a failure. */
ort_status nnb_ort_shape(ort_object tensor, int64_t **dimensions, size_t *rank);

/* Gets an array of objects by two functions of the engine: count, and fill. The caller frees it. */
ort_status nnb_ort_list(ort_object owner, int count_place, int list_place, ort_object **items, size_t *count);

#endif
