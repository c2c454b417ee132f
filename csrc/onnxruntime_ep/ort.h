/* The part of onnxruntime's C interface that a plugin execution provider uses, from version 1.23 on, declared
 * anew (docs/adr/0056). Objects of the engine are opaque pointers; a status is NULL for success.
 *
 * Tables and structs only grow at their ends, and each struct of this library has its version, so places and
 * members stay the same as in 1.23. */
#ifndef NNB_ORT_H
#define NNB_ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *ort_status;
typedef const void *ort_object;

enum { ORT_VERSION = 23 };

/* Places in the engine's table. */
enum {
    ORT_CREATE_STATUS = 0,
    ORT_GET_ERROR_MESSAGE = 2,
    ORT_CAST_TO_TENSOR_INFO = 55,
    ORT_GET_ELEMENT_TYPE = 60,
    ORT_GET_RANK = 61,
    ORT_GET_DIMENSIONS = 62,
    ORT_GET_SYMBOLIC_DIMENSIONS = 63,
    ORT_GET_TYPE_AND_SHAPE = 65,
    ORT_KERNEL_INPUT = 90,
    ORT_KERNEL_OUTPUT = 91,
    ORT_RELEASE_STATUS = 93,
    ORT_RELEASE_MEMORY_INFO = 94,
    ORT_RELEASE_VALUE = 96,
    ORT_RELEASE_TENSOR_INFO = 99,
    ORT_GET_TENSOR_DATA = 51,
    ORT_LOG = 247,
    ORT_READ_ATTRIBUTE = 272,
    ORT_VALUE_NAME = 289,
    ORT_VALUE_TYPE = 290,
    ORT_GET_PAIRS = 298,
    ORT_RELEASE_PAIRS = 300,
    ORT_HARDWARE_TYPE = 307,
    ORT_GET_EP_API = 317,
    ORT_TENSOR_BYTES = 318,
    ORT_CREATE_MEMORY_INFO = 320,
    ORT_VALUE_INITIALIZER = 326,
    ORT_VALUE_IS_CONSTANT = 331,
    ORT_GRAPH_IR_VERSION = 335,
    ORT_GRAPH_COUNT_OPERATOR_SETS = 336,
    ORT_GRAPH_OPERATOR_SETS = 337,
    ORT_GRAPH_COUNT_INPUTS = 338,
    ORT_GRAPH_INPUTS = 339,
    ORT_GRAPH_COUNT_OUTPUTS = 340,
    ORT_GRAPH_OUTPUTS = 341,
    ORT_GRAPH_COUNT_INITIALIZERS = 342,
    ORT_GRAPH_INITIALIZERS = 343,
    ORT_GRAPH_COUNT_NODES = 344,
    ORT_GRAPH_NODES = 345,
    ORT_GRAPH_PARENT = 346,
    ORT_GRAPH_VIEW = 347,
    ORT_RELEASE_GRAPH = 287,
    ORT_NODE_NAME = 349,
    ORT_NODE_OPERATOR = 350,
    ORT_NODE_DOMAIN = 351,
    ORT_NODE_COUNT_INPUTS = 353,
    ORT_NODE_INPUTS = 354,
    ORT_NODE_COUNT_OUTPUTS = 355,
    ORT_NODE_OUTPUTS = 356,
    ORT_NODE_COUNT_IMPLICIT_INPUTS = 357,
    ORT_NODE_IMPLICIT_INPUTS = 358,
    ORT_NODE_COUNT_ATTRIBUTES = 359,
    ORT_NODE_ATTRIBUTES = 360,
    ORT_ATTRIBUTE_TENSOR = 362,
    ORT_ATTRIBUTE_TYPE = 363,
    ORT_ATTRIBUTE_NAME = 364,
    ORT_NODE_COUNT_SUBGRAPHS = 365,
    ORT_NODE_SUBGRAPHS = 366,
    ORT_NODE_GRAPH = 367,
    ORT_OPTION_ENTRIES = 379,
    ORT_HAS_SHAPE = 390, /* from 1.24 on */
};

/* Places in its table for execution providers. */
enum {
    ORT_EP_CREATE_DEVICE = 0,
    ORT_EP_RELEASE_DEVICE = 1,
    ORT_EP_FUSE = 2,
    ORT_EP_ADD_ALLOCATOR = 5,
    ORT_EP_MEMORY_TYPE = 10,
    ORT_EP_MEMORY_DEVICE_TYPE = 9,
};

/* Not EP_FAIL: after it onnxruntime's Python runs the session on the CPU, and the caller gets no error. */
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };
enum { ORT_WARNING = 2 };
enum { ORT_HARDWARE_CPU = 0 };
enum { ORT_DEVICE_CPU = 0, ORT_DEVICE_NPU = 3 };
enum { ORT_MEMORY_HOST_ACCESSIBLE = 5 };
enum { ORT_DEVICE_ALLOCATOR = 0 };
enum { ORT_INT64 = 7, ORT_STRING = 8, ORT_BOOL = 9 }; /* element types have ONNX's numbers */

/* Attributes, by the engine's numbers. */
enum {
    ORT_ATTRIBUTE_INT = 1,
    ORT_ATTRIBUTE_INTS = 2,
    ORT_ATTRIBUTE_FLOAT = 3,
    ORT_ATTRIBUTE_FLOATS = 4,
    ORT_ATTRIBUTE_STRING = 5,
    ORT_ATTRIBUTE_STRINGS = 6,
    ORT_ATTRIBUTE_GRAPH = 7,
    ORT_ATTRIBUTE_IS_TENSOR = 8,
};

struct ort_base {
    void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

/* Of one library of ours that is loaded; set by CreateEpFactories. */
struct ort_engine {
    void *const *api;
    void *const *ep;
    bool has_shapes; /* whether it tells an unknown shape from that of a scalar */
};
extern struct ort_engine nnb_ort;

/* The function at a place of the table, cast to these argument types. */
#define ORT(place, ...) ((ort_status(*)(__VA_ARGS__))nnb_ort.api[place])
#define ORT_EP(place, ...) ((ort_status(*)(__VA_ARGS__))nnb_ort.ep[place])
#define ORT_RELEASE(place, object) (((void (*)(const void *))nnb_ort.api[place])(object))

/* Ends the calling function with a status that is not success. */
#define ORT_TRY(call)                     \
    do {                                  \
        ort_status failed_ = (call);      \
        if (failed_ != NULL) {            \
            return failed_;               \
        }                                 \
    } while (0)

/* -- structs that are filled in here ---------------------------------------------------------------------- */

struct ort_allocator {
    uint32_t version;
    void *(*alloc)(struct ort_allocator *, size_t);
    void (*free)(struct ort_allocator *, void *);
    ort_object (*info)(const struct ort_allocator *);
    void *(*reserve)(struct ort_allocator *, size_t);
    ort_status (*get_stats)(const struct ort_allocator *, void **);
    void *(*alloc_on_stream)(struct ort_allocator *, size_t, void *);
};

struct ort_data_transfer {
    uint32_t version;
    void (*release)(struct ort_data_transfer *);
    bool (*can_copy)(const struct ort_data_transfer *, ort_object from, ort_object to);
    ort_status (*copy)(struct ort_data_transfer *, const ort_object *from, void **to, void **streams, size_t count);
};

struct ort_compute_info {
    uint32_t version;
    ort_status (*create_state)(struct ort_compute_info *, void *context, void **state);
    ort_status (*compute)(struct ort_compute_info *, void *state, void *context);
    void (*release_state)(struct ort_compute_info *, void *state);
};

struct ort_fusion_options {
    uint32_t version;
    bool drop_constant_initializers;
};

struct ort_ep {
    uint32_t version;
    const char *(*get_name)(const struct ort_ep *);
    ort_status (*get_capability)(struct ort_ep *, ort_object graph, void *support);
    ort_status (*compile)(struct ort_ep *, const ort_object *graphs, const ort_object *fused, size_t count,
                          struct ort_compute_info **infos, void **context_nodes);
    void (*release_infos)(struct ort_ep *, struct ort_compute_info **infos, size_t count);
    void *get_preferred_layout; /* from here on optional */
    void *should_convert_layout;
    void *set_dynamic_options;
    void *on_run_start;
    void *on_run_end;
    void *create_allocator;
    void *create_stream;
    void *get_compatibility;
};

struct ort_ep_factory {
    uint32_t version;
    const char *(*get_name)(const struct ort_ep_factory *);
    const char *(*get_vendor)(const struct ort_ep_factory *);
    ort_status (*get_devices)(struct ort_ep_factory *, const ort_object *devices, size_t count, void **ep_devices,
                              size_t most, size_t *found);
    ort_status (*create_ep)(struct ort_ep_factory *, const ort_object *devices, const ort_object *metadata,
                            size_t count, ort_object options, ort_object logger, struct ort_ep **ep);
    void (*release_ep)(struct ort_ep_factory *, struct ort_ep *);
    uint32_t (*get_vendor_id)(const struct ort_ep_factory *);
    const char *(*get_version)(const struct ort_ep_factory *);
    void *validate_compatibility;
    ort_status (*create_allocator)(struct ort_ep_factory *, ort_object memory_info, ort_object options,
                                   struct ort_allocator **allocator);
    void (*release_allocator)(struct ort_ep_factory *, struct ort_allocator *);
    ort_status (*create_transfer)(struct ort_ep_factory *, struct ort_data_transfer **transfer);
    bool (*is_stream_aware)(const struct ort_ep_factory *);
    ort_status (*create_stream)(struct ort_ep_factory *, ort_object memory, ort_object options, void **stream);
};

/* -- common ----------------------------------------------------------------------------------------------- */

/* Makes a status with a text. */
ort_status nnb_ort_status(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes the status for a lack of memory. */
ort_status nnb_ort_short_of_memory(void);

/* Makes a status from the code of a function in nnburst.h. */
ort_status nnb_ort_failed(const char *what, int code);

#endif
