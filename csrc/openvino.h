/* Opens OpenVINO's C library at run time, compiles ONNX graphs, binds requests, and runs them without Python.
 *
 * The library is part of the wheel `openvino`. Its functions are found by name; openvino.c declares those that it
 * uses as 2025.4 to 2026.4 have them, and refuses an older library. Borders and arguments are those of onnxruntime.h:
 * a graph is the same to both engines.
 */
#ifndef NNB_OPENVINO_H
#define NNB_OPENVINO_H

#include <stdint.h>

#include <nnburst/executor.h>

#include "onnxruntime.h"

/* The most properties that a network is compiled with. */
#define NNB_OPENVINO_MAX_PROPERTIES 6

/* A property of OpenVINO by its name, both as text. */
struct nnb_openvino_property {
    const char *key;
    const char *value;
};

struct nnb_openvino_network;
struct nnb_openvino_call;

enum nnb_openvino_status { NNB_OPENVINO_OK, NNB_OPENVINO_NO_LIBRARY, NNB_OPENVINO_NO_SYMBOL, NNB_OPENVINO_FAILED };

/* Opens the library for this process, and reads `content`, a graph, once, so that forked processes have the
 * reader; further calls do nothing. Not thread-safe; starts no thread. Writes the library's version, with
 * room for NNB_ONNX_NAME_BYTES, and the reason of a failure. */
int nnb_openvino_open(const char *path, const uint8_t *content, uint64_t bytes, char *version, char *message);

/* Gets the whole name of a device such as CPU, with room for NNB_ONNX_NAME_BYTES, and loads its plugin. */
int nnb_openvino_device(const char *device, char *name, char *message);

/* Compiles a graph for a device. `content` is not needed afterwards. `profile`: whether the properties
 * request each node's time. Returns NULL after a failure, with the reason in `message`. */
struct nnb_openvino_network *nnb_openvino_network_new(const uint8_t *content, uint64_t bytes, const char *device,
                                                      const struct nnb_openvino_property *properties,
                                                      uint32_t property_count, uint32_t profile, char *message);

/* As the function above, from a network that nnb_openvino_export wrote in this version for this device and processor.
 * The library believes these bytes: they are ours, exactly as they were. They are copied, since
 * it reads constants where they are in each run. Waits while another thread compiles. */
struct nnb_openvino_network *nnb_openvino_network_import(const uint8_t *content, uint64_t bytes, const char *device,
                                                         const struct nnb_openvino_property *properties,
                                                         uint32_t property_count, uint32_t profile, char *message);

/* Write a compiled network to a file, whose path the library opens. */
int nnb_openvino_export(const struct nnb_openvino_network *, const char *path, char *message);
void nnb_openvino_network_free(struct nnb_openvino_network *);
uint32_t nnb_openvino_count(const struct nnb_openvino_network *, int outputs);
int nnb_openvino_describe(const struct nnb_openvino_network *, int outputs, uint32_t at, struct nnb_onnx_border *);

/* Binds a request, whose arguments are all NNB_ONNX_WHOLE; NULL after a failure, with the reason in
 * `message`. The calls of a network may run at once. */
struct nnb_openvino_call *nnb_openvino_bind(struct nnb_openvino_network *, const struct nnb_onnx_argument *inputs,
                                            const struct nnb_onnx_argument *outputs, char *message);
void nnb_openvino_call_free(struct nnb_openvino_call *);

/* Runs a bound request (`call` is a struct nnb_openvino_call *), in the form of the executors' header. The
 * device's time is the sum of its nodes' times if they are measured, else not available. */
int32_t nnb_openvino_run(nnbx_execution *call, const struct nnbx_run *, struct nnbx_outcome *);

/* Makes the run under way, if it has a deadline, and every later one end soon, or stops doing so. Any thread
 * may call this. */
void nnb_openvino_stop(struct nnb_openvino_call *, int stop);

/* The bytes that one run copies. */
uint64_t nnb_openvino_copied_bytes(const struct nnb_openvino_call *);

#endif
