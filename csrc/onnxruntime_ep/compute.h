/* Graphs that a driver has prepared, and their runs. */
#ifndef NNB_EP_COMPUTE_H
#define NNB_EP_COMPUTE_H

#include "onnxruntime_ep/graph.h"
#include "plugin/driver.h"

struct nnb_graph;

/* Has the driver prepare a graph, which takes over `*written`; frees it if that fails. */
ort_status nnb_graph_prepare(struct nnb_driver *driver, struct nnb_written *written, struct nnb_graph **graph);

/* Lets go of a graph and of what the driver has of it. NULL is fine. */
void nnb_graph_close(struct nnb_graph *graph);

const struct nnb_written *nnb_graph_written(const struct nnb_graph *graph);

/* Finds the graph's inputs and outputs among those of the engine's fused node, and fills in what the engine calls. */
ort_status nnb_graph_fuse(struct nnb_graph *graph, ort_object node, struct ort_compute_info **info);

/* The graph of what nnb_graph_fuse has given. */
struct nnb_graph *nnb_graph_of(struct ort_compute_info *info);

#endif
