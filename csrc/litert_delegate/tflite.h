/* The part of LiteRT's interface for delegates that the delegate uses, as in ai-edge-litert 2.1 to 2.3 and
 * tflite-runtime 2.14. Nothing is linked or included: the engine calls the delegate and passes pointers to
 * its functions. */
#ifndef NNB_DELEGATE_TFLITE_H
#define NNB_DELEGATE_TFLITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TFL_OK = 0, TFL_ERROR = 1, TFL_DELEGATE_ERROR = 2 };
enum { TFL_READ_ONLY = 1, TFL_DYNAMIC = 4 }; /* how memory is allocated */
enum { TFL_ALLOWS_DYNAMIC = 1, TFL_WANTS_EXTENTS = 2 }; /* a delegate's flags */
enum { TFL_UNQUANTIZED = 0, TFL_AFFINE = 1 };
enum { TFL_DELEGATE_CODE = 51, TFL_NO_TENSOR = -1 };
/* Types that the delegate looks for by themselves; see types in tensors.c. */
enum { TFL_INT32 = 2, TFL_INT16 = 7 };

struct tfl_ints {
    int size;
    int data[];
};

struct tfl_floats {
    int size;
    float data[];
};

struct tfl_affine {
    struct tfl_floats *scales;
    struct tfl_ints *zero_points;
    int32_t dimension;
};

struct tfl_delegate;

struct tfl_tensor {
    int type;
    void *data;
    struct tfl_ints *dimensions;
    float old_scale;
    int32_t old_zero_point;
    int allocation;
    size_t bytes;
    const void *file;
    const char *name;
    struct tfl_delegate *delegate;
    int buffer;
    bool is_stale;
    bool is_variable;
    int quantization_kind;
    void *quantization;
    void *sparsity;
    const struct tfl_ints *signature;
};

struct tfl_node {
    struct tfl_ints *inputs;
    struct tfl_ints *outputs;
    struct tfl_ints *intermediates;
    struct tfl_ints *temporaries;
    void *user_data;
    void *options;
    const void *custom_options;
    int custom_bytes;
    struct tfl_delegate *delegate;
    bool has_side_effects;
};

struct tfl_context;

/* The engine gets it by value, so it must be at least as large as the engine's own struct. */
struct tfl_registration {
    void *(*init)(struct tfl_context *context, const char *parameters, size_t length);
    void (*free)(struct tfl_context *context, void *data);
    int (*prepare)(struct tfl_context *context, struct tfl_node *node);
    int (*invoke)(struct tfl_context *context, struct tfl_node *node);
    const char *(*profiling)(const struct tfl_context *context, const struct tfl_node *node);
    int32_t code;
    const char *custom_name;
    int version;
    void *external;
    void *async_kernel;
    uint64_t in_place;
    void *later[8]; /* for what another version may have behind it */
};

/* The argument of a kernel: the nodes that it replaces. */
struct tfl_partition {
    struct tfl_delegate *delegate;
    struct tfl_ints *nodes;
    struct tfl_ints *inputs;
    struct tfl_ints *outputs;
};

struct tfl_delegate {
    void *data;
    int (*prepare)(struct tfl_context *context, struct tfl_delegate *delegate);
    void *copy_from_buffer;
    void *copy_to_buffer;
    void *free_buffer;
    int64_t flags;
    void *builder;
    void *later[8];
};

struct tfl_context {
    size_t tensor_count;
    int (*plan)(struct tfl_context *context, struct tfl_ints **nodes);
    struct tfl_tensor *tensors;
    void *implementation;
    int (*resize)(struct tfl_context *context, struct tfl_tensor *tensor, struct tfl_ints *dimensions);
    void (*report)(struct tfl_context *context, const char *format, ...);
    void *add_tensors;
    int (*node)(struct tfl_context *context, int index, struct tfl_node **node, struct tfl_registration **registration);
    int (*replace)(struct tfl_context *context, struct tfl_registration registration, const struct tfl_ints *nodes,
                   struct tfl_delegate *delegate);
    int recommended_threads;
    void *external_context;
    void *set_external_context;
    bool allows_float16;
    void *profiler;
    void *allocate_persistent;
    void *allocate_for_run;
    void *request_scratch;
    void *scratch;
    void *resize_explicit;
    int (*preview)(struct tfl_context *context, const struct tfl_ints *nodes, struct tfl_partition **partitions, int *count);
    void *get_tensor;
    void *get_plain_tensor;
    void *metadata;
    int (*acquire)(struct tfl_context *context, int subgraph, struct tfl_context **acquired);
    int (*release)(struct tfl_context *context, int subgraph);
};

#endif
