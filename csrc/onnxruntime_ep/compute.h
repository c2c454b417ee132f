/* Has a driver prepare graphs, and runs them. */
#ifndef NNB_EP_COMPUTE_H
#define NNB_EP_COMPUTE_H

#include "onnxruntime_ep/graph.h"
#include "plugin/driver.h"

struct nnb_graph;

/* Has the driver prepare a graph, which takes over `*written`; frees it if that fails. */
ort_status nnb_graph_prepare(struct nnb_driver *driver, struct nnb_written *written, struct nnb_graph **graph);

/* Frees a graph and releases it in the driver. NULL is allowed. */
void nnb_graph_close(struct nnb_graph *graph);

const struct nnb_written *nnb_graph_written(const struct nnb_graph *graph);

/* Finds the graph's inputs and outputs among those of the engine's fused node, and returns the functions for
 * the engine. */
ort_status nnb_graph_fuse(struct nnb_graph *graph, ort_object node, struct ort_compute_info **info);

/* The graph that belongs to the result of nnb_graph_fuse. */
struct nnb_graph *nnb_graph_of(struct ort_compute_info *info);

#endif
