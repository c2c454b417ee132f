/* The plugin: the functions that the engine finds in the library, the factory, and a provider for each
 * session. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_ep/compute.h"
#include "onnxruntime_ep/pools.h"

#define NAME "NnburstExecutionProvider"
#define OPTION_PREFIX "ep.nnburstexecutionprovider." /* as the engine makes it of the name */
#define DEFAULT_EXECUTOR "onnxruntime"

enum { OLDEST_MINOR = 23, SHAPES_MINOR = 24, VENDOR = 0x6e6e, ALIGNMENT = 64 };
enum { VALUE_PRODUCER = 323, VALUE_IS_FROM_OUTER_SCOPE = 332, NODE_ID = 348 };

struct ort_engine nnb_ort;

struct factory {
    struct ort_ep_factory base; /* first: the engine has its address */
    void *memory_info;
};

struct provider {
    struct ort_ep base; /* likewise */
    ort_object logger;
    struct nnb_driver driver;
    struct nnb_graph **candidates; /* prepared to see whether the driver takes them, and not compiled yet */
    size_t candidate_count;
};

ort_status nnb_ort_status(int code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return ORT(ORT_CREATE_STATUS, int, const char *)(code, text);
}

ort_status nnb_ort_short_of_memory(void) { return nnb_ort_status(ORT_FAIL, "memory is short"); }

ort_status nnb_ort_failed(const char *what, int code) {
    const char *why = nnburst_error_message();
    return nnb_ort_status(code == NNBURST_BAD_DATA ? ORT_INVALID_ARGUMENT : ORT_FAIL, "nnburst: %s: %s: %s", what,
                          nnburst_result_name(code), why);
}

/* -- claims ----------------------------------------------------------------------------------------------- */

/* The nodes of a graph, and the findings about each. */
struct nodes {
    ort_object *items;
    size_t count;
    bool *writable;
    size_t *levels;
    size_t *positions; /* by the engine's number of a node, one more than its position here; 0 without one */
    size_t number_count;
};

static void free_nodes(struct nodes *nodes) {
    free(nodes->items);
    free(nodes->writable);
    free(nodes->levels);
    free(nodes->positions);
}

static ort_status number_of(ort_object node, size_t *number) {
    return ORT(NODE_ID, ort_object, size_t *)(node, number);
}

static ort_status look_at(ort_object graph, struct nodes *nodes) {
    ORT_TRY(nnb_ort_list(graph, ORT_GRAPH_COUNT_NODES, ORT_GRAPH_NODES, &nodes->items, &nodes->count));
    nodes->writable = calloc(nodes->count + 1, sizeof *nodes->writable);
    nodes->levels = calloc(nodes->count + 1, sizeof *nodes->levels);
    if (nodes->writable == NULL || nodes->levels == NULL) {
        return nnb_ort_short_of_memory();
    }
    for (size_t i = 0; i < nodes->count; i++) {
        size_t number = 0;
        ORT_TRY(nnb_node_is_writable(nodes->items[i], &nodes->writable[i]));
        ORT_TRY(number_of(nodes->items[i], &number));
        nodes->number_count = number >= nodes->number_count ? number + 1 : nodes->number_count;
    }
    nodes->positions = calloc(nodes->number_count + 1, sizeof *nodes->positions);
    if (nodes->positions == NULL) {
        return nnb_ort_short_of_memory();
    }
    for (size_t i = 0; i < nodes->count; i++) {
        size_t number = 0;
        ORT_TRY(number_of(nodes->items[i], &number));
        nodes->positions[number] = i + 1;
    }
    return NULL;
}

/* Raises a node's level to the least that the nodes which make its inputs allow. */
static ort_status raise_level(struct nodes *nodes, size_t node, int count_place, int list_place, bool *raised) {
    ort_object *values = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(nodes->items[node], count_place, list_place, &values, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        bool is_outer = false;
        ort_object maker = NULL;
        size_t output = 0;
        size_t number = 0;
        if (values[i] == NULL) {
            continue;
        }
        failed = ORT(VALUE_IS_FROM_OUTER_SCOPE, ort_object, bool *)(values[i], &is_outer);
        if (failed == NULL && !is_outer) {
            failed = ORT(VALUE_PRODUCER, ort_object, ort_object *, size_t *)(values[i], &maker, &output);
        }
        if (failed == NULL && maker != NULL) {
            failed = number_of(maker, &number);
        }
        if (failed != NULL || maker == NULL || number >= nodes->number_count || nodes->positions[number] == 0) {
            continue;
        }
        size_t from = nodes->positions[number] - 1;
        size_t level = nodes->levels[from] + (nodes->writable[node] && !nodes->writable[from]);
        if (level > nodes->levels[node]) {
            nodes->levels[node] = level;
            *raised = true;
        }
    }
    free(values);
    return failed;
}

/* Finds the levels of nodes. A node's level is the number of times that a path to it leaves the nodes that
 * cannot be written. Between writable nodes of the same level there is no other node, so they can be fused.
 * */
static ort_status find_levels(struct nodes *nodes) {
    bool raised = true;
    for (size_t round = 0; raised && round <= nodes->count; round++) {
        raised = false;
        for (size_t i = 0; i < nodes->count; i++) {
            ORT_TRY(raise_level(nodes, i, ORT_NODE_COUNT_INPUTS, ORT_NODE_INPUTS, &raised));
            ORT_TRY(raise_level(nodes, i, ORT_NODE_COUNT_IMPLICIT_INPUTS, ORT_NODE_IMPLICIT_INPUTS, &raised));
        }
    }
    return NULL;
}

/* Logs why nodes are not claimed, and frees the status. */
static void explain(const struct provider *provider, size_t count, ort_status failed) {
    char text[1200];
    const char *why = ((const char *(*)(ort_status))nnb_ort.api[ORT_GET_ERROR_MESSAGE])(failed);
    (void)snprintf(text, sizeof text, "%zu nodes are left to other providers: %s", count, why);
    ort_status unlogged = ORT(ORT_LOG, ort_object, int, const char *, const char *, int, const char *)(
        provider->logger, ORT_WARNING, text, __FILE__, __LINE__, __func__);
    if (unlogged != NULL) {
        ORT_RELEASE(ORT_RELEASE_STATUS, unlogged);
    }
    ORT_RELEASE(ORT_RELEASE_STATUS, failed);
}

/* The place of the candidate that was made from the same file; `candidate_count` without one. */
static size_t find_candidate(const struct provider *provider, const struct nnb_written *written) {
    size_t at = 0;
    while (at < provider->candidate_count &&
           !nnb_written_same(nnb_graph_written(provider->candidates[at]), written)) {
        at++;
    }
    return at;
}

/* Has the driver prepare these nodes, unless it has already. */
static ort_status try_nodes(struct provider *provider, ort_object graph, const ort_object *nodes, size_t count) {
    void *view = NULL;
    struct nnb_written written;
    ORT_TRY(ORT(ORT_GRAPH_VIEW, ort_object, const ort_object *, size_t, void **)(graph, nodes, count, &view));
    ort_status failed = nnb_graph_write(view, &written);
    if (failed == NULL && find_candidate(provider, &written) != provider->candidate_count) {
        nnb_written_free(&written);
        ORT_RELEASE(ORT_RELEASE_GRAPH, view);
        return NULL;
    }
    struct nnb_graph **more =
        realloc(provider->candidates, (provider->candidate_count + 1) * sizeof(struct nnb_graph *));
    if (failed == NULL && more == NULL) {
        failed = nnb_ort_short_of_memory();
    }
    provider->candidates = more == NULL ? provider->candidates : more;
    if (failed == NULL) {
        struct nnb_graph *prepared = NULL;
        failed = nnb_graph_prepare(&provider->driver, &written, &prepared);
        if (failed == NULL) {
            provider->candidates[provider->candidate_count++] = prepared;
        }
    } else {
        nnb_written_free(&written);
    }
    ORT_RELEASE(ORT_RELEASE_GRAPH, view);
    return failed;
}

/* Claims the nodes of a level that can be written, if the driver takes them. */
static ort_status claim_level(struct provider *provider, ort_object graph, const struct nodes *nodes, size_t level,
                              void *support) {
    ort_object *chosen = calloc(nodes->count + 1, sizeof *chosen);
    size_t count = 0;
    if (chosen == NULL) {
        return nnb_ort_short_of_memory();
    }
    for (size_t i = 0; i < nodes->count; i++) {
        if (nodes->writable[i] && nodes->levels[i] == level) {
            chosen[count++] = nodes->items[i];
        }
    }
    ort_status failed = NULL;
    if (count != 0) {
        ort_status refused = try_nodes(provider, graph, chosen, count);
        if (refused != NULL) {
            explain(provider, count, refused);
        } else {
            const struct ort_fusion_options options = {ORT_VERSION, true};
            failed = ORT_EP(ORT_EP_FUSE, void *, const ort_object *, size_t, const struct ort_fusion_options *)(
                support, chosen, count, &options);
        }
    }
    free(chosen);
    return failed;
}

/* Whether a node reads a value of another graph. */
static ort_status reads_outer(ort_object node, bool *outer) {
    ort_object *values = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(node, ORT_NODE_COUNT_INPUTS, ORT_NODE_INPUTS, &values, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && !*outer && i < count; i++) {
        failed = values[i] == NULL ? NULL : ORT(VALUE_IS_FROM_OUTER_SCOPE, ort_object, bool *)(values[i], outer);
    }
    free(values);
    return failed;
}

/* Whether a graph without a parent node seems to be a subgraph. onnxruntime 1.23 does not report the parent
 * node, and would give the parts of two subgraphs the same name, so their nodes are not claimed. Signs of a
 * subgraph, which a network hardly ever has: values of another graph, no input (a branch), or a truth value
 * as second input and first output (a loop). */
static ort_status looks_nested(ort_object graph, bool *nested) {
    ort_object *nodes = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(graph, ORT_GRAPH_COUNT_NODES, ORT_GRAPH_NODES, &nodes, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && !*nested && i < count; i++) {
        failed = reads_outer(nodes[i], nested);
    }
    free(nodes);
    if (failed != NULL || *nested || nnb_ort.has_shapes) {
        return failed;
    }
    ort_object *inputs = NULL;
    ort_object *outputs = NULL;
    size_t output_count = 0;
    ORT_TRY(nnb_ort_list(graph, ORT_GRAPH_COUNT_INPUTS, ORT_GRAPH_INPUTS, &inputs, &count));
    failed = nnb_ort_list(graph, ORT_GRAPH_COUNT_OUTPUTS, ORT_GRAPH_OUTPUTS, &outputs, &output_count);
    *nested = count == 0;
    if (failed == NULL && count >= 2 && output_count != 0) {
        int first = 0;
        int second = 0;
        failed = nnb_value_element(inputs[1], &second);
        if (failed == NULL) {
            failed = nnb_value_element(outputs[0], &first);
        }
        *nested = first == ORT_BOOL && second == ORT_BOOL;
    }
    free(inputs);
    free(outputs);
    return failed;
}

/* Whether a graph lies in a node that will be claimed with all of its graphs. */
static ort_status goes_with_its_node(ort_object graph, bool *goes) {
    ort_object node = NULL;
    *goes = false;
    ORT_TRY(ORT(ORT_GRAPH_PARENT, ort_object, ort_object *)(graph, &node));
    if (node == NULL) {
        return looks_nested(graph, goes);
    }
    while (node != NULL && !*goes) {
        ort_object around = NULL;
        ORT_TRY(nnb_node_is_writable(node, goes));
        ORT_TRY(ORT(ORT_NODE_GRAPH, ort_object, ort_object *)(node, &around));
        node = NULL;
        if (around != NULL) {
            ORT_TRY(ORT(ORT_GRAPH_PARENT, ort_object, ort_object *)(around, &node));
        }
    }
    return NULL;
}

static ort_status get_capability(struct ort_ep *ep, ort_object graph, void *support) {
    struct provider *provider = (struct provider *)(void *)ep;
    struct nodes nodes = {0};
    bool goes = false;
    ORT_TRY(goes_with_its_node(graph, &goes));
    if (goes) {
        return NULL;
    }
    ort_status failed = look_at(graph, &nodes);
    if (failed == NULL) {
        failed = find_levels(&nodes);
    }
    size_t highest = 0;
    for (size_t i = 0; failed == NULL && i < nodes.count; i++) {
        highest = nodes.levels[i] > highest ? nodes.levels[i] : highest;
    }
    for (size_t level = 0; failed == NULL && level <= highest; level++) {
        failed = claim_level(provider, graph, &nodes, level, support);
    }
    free_nodes(&nodes);
    return failed;
}

/* -- compilation ------------------------------------------------------------------------------------------ */

/* Takes the candidate that was made from the same file off the list; otherwise prepares one now. */
static ort_status compile_one(struct provider *provider, ort_object graph, struct nnb_graph **compiled) {
    struct nnb_written written;
    ort_status failed = nnb_graph_write(graph, &written);
    if (failed != NULL) {
        nnb_written_free(&written);
        return failed;
    }
    size_t at = find_candidate(provider, &written);
    if (at != provider->candidate_count) {
        *compiled = provider->candidates[at];
        provider->candidates[at] = provider->candidates[--provider->candidate_count];
        nnb_written_free(&written);
        return NULL;
    }
    return nnb_graph_prepare(&provider->driver, &written, compiled);
}

static void drop_candidates(struct provider *provider) {
    while (provider->candidate_count != 0) {
        nnb_graph_close(provider->candidates[--provider->candidate_count]);
    }
}

static void release_infos(struct ort_ep *ep, struct ort_compute_info **infos, size_t count) {
    (void)ep;
    for (size_t i = 0; i < count; i++) {
        if (infos[i] != NULL) {
            nnb_graph_close(nnb_graph_of(infos[i]));
        }
    }
}

static ort_status compile(struct ort_ep *ep, const ort_object *graphs, const ort_object *fused, size_t count,
                          struct ort_compute_info **infos, void **context_nodes) {
    struct provider *provider = (struct provider *)(void *)ep;
    (void)context_nodes;
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        struct nnb_graph *compiled = NULL;
        infos[i] = NULL;
        failed = compile_one(provider, graphs[i], &compiled);
        if (failed == NULL) {
            failed = nnb_graph_fuse(compiled, fused[i], &infos[i]);
            if (failed != NULL) {
                nnb_graph_close(compiled);
            }
        }
        if (failed != NULL) {
            release_infos(ep, infos, i);
            memset(infos, 0, count * sizeof(struct ort_compute_info *));
        }
    }
    drop_candidates(provider);
    return failed;
}

/* -- sessions --------------------------------------------------------------------------------------------- */

static const char *provider_name(const struct ort_ep *ep) {
    (void)ep;
    return NAME;
}

static ort_status refused(const struct nnb_reason *reason) {
    return nnb_ort_status(ORT_INVALID_ARGUMENT, "%s", reason->text);
}

static ort_status read_options(ort_object session_options, struct nnb_driver_options *options) {
    void *pairs = NULL;
    const char *const *keys = NULL;
    const char *const *values = NULL;
    size_t count = 0;
    struct nnb_reason reason;
    ORT_TRY(ORT(ORT_OPTION_ENTRIES, ort_object, void **)(session_options, &pairs));
    ((void (*)(ort_object, const char *const **, const char *const **, size_t *))nnb_ort.api[ORT_GET_PAIRS])(
        pairs, &keys, &values, &count);
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        if (strncmp(keys[i], OPTION_PREFIX, strlen(OPTION_PREFIX)) != 0) {
            continue;
        }
        const char *name = keys[i] + strlen(OPTION_PREFIX);
        bool known = false;
        if (!nnb_driver_read_option(options, name, values[i], &known, &reason)) {
            failed = refused(&reason);
        } else if (!known) {
            failed = nnb_ort_status(ORT_INVALID_ARGUMENT, "nnburst: option '%.64s', expected " NNB_DRIVER_OPTIONS, name);
        }
    }
    ORT_RELEASE(ORT_RELEASE_PAIRS, pairs);
    return failed;
}

static void release_ep(struct ort_ep_factory *factory, struct ort_ep *ep) {
    struct provider *provider = (struct provider *)(void *)ep;
    (void)factory;
    drop_candidates(provider);
    free(provider->candidates);
    nnb_driver_close(&provider->driver);
    free(provider);
}

static ort_status create_ep(struct ort_ep_factory *factory, const ort_object *devices, const ort_object *metadata,
                            size_t count, ort_object session_options, ort_object logger, struct ort_ep **ep) {
    (void)factory;
    (void)devices;
    (void)metadata;
    (void)count;
    struct nnb_driver_options options;
    struct nnb_reason reason;
    struct provider *provider = calloc(1, sizeof *provider);
    nnb_driver_options_init(&options);
    ort_status failed = provider == NULL ? nnb_ort_short_of_memory() : read_options(session_options, &options);
    if (failed == NULL && !nnb_driver_open(&provider->driver, &options, DEFAULT_EXECUTOR, &reason)) {
        failed = refused(&reason);
    }
    if (failed == NULL) {
        provider->base = (struct ort_ep){
            .version = ORT_VERSION,
            .get_name = provider_name,
            .get_capability = get_capability,
            .compile = compile,
            .release_infos = release_infos,
        };
        provider->logger = logger;
        *ep = &provider->base;
    } else {
        free(provider);
    }
    nnb_driver_options_free(&options);
    return failed;
}

/* -- the factory ------------------------------------------------------------------------------------------ */

static const char *factory_name(const struct ort_ep_factory *factory) {
    (void)factory;
    return NAME;
}

static const char *vendor(const struct ort_ep_factory *factory) {
    (void)factory;
    return "nnburst";
}

static uint32_t vendor_id(const struct ort_ep_factory *factory) {
    (void)factory;
    return VENDOR;
}

static const char *factory_version(const struct ort_ep_factory *factory) {
    (void)factory;
    return "1.0.0"; /* of the options, which is what callers see */
}

/* One device, on the processor that drivers run on. */
static ort_status get_devices(struct ort_ep_factory *base, const ort_object *devices, size_t count, void **ep_devices,
                              size_t most, size_t *found) {
    const struct factory *factory = (struct factory *)(void *)base;
    *found = 0;
    for (size_t i = 0; i < count && most != 0; i++) {
        if (((int (*)(ort_object))nnb_ort.api[ORT_HARDWARE_TYPE])(devices[i]) != ORT_HARDWARE_CPU) {
            continue;
        }
        ORT_TRY(ORT_EP(ORT_EP_CREATE_DEVICE, void *, ort_object, ort_object, ort_object, void **)(
            base, devices[i], NULL, NULL, &ep_devices[0]));
        ort_status failed = ORT_EP(ORT_EP_ADD_ALLOCATOR, void *, ort_object)(ep_devices[0], factory->memory_info);
        if (failed != NULL) {
            ((void (*)(void *))nnb_ort.ep[ORT_EP_RELEASE_DEVICE])(ep_devices[0]);
            return failed;
        }
        *found = 1;
        break;
    }
    return NULL;
}

static ort_status create_allocator(struct ort_ep_factory *base, ort_object memory_info, ort_object options,
                                   struct ort_allocator **allocator) {
    (void)memory_info;
    (void)options;
    *allocator = nnb_pools_allocator(((struct factory *)(void *)base)->memory_info);
    return NULL;
}

static void release_allocator(struct ort_ep_factory *base, struct ort_allocator *allocator) {
    (void)base;
    (void)allocator; /* the library's */
}

static ort_status create_transfer(struct ort_ep_factory *base, struct ort_data_transfer **transfer) {
    (void)base;
    *transfer = nnb_pools_transfer();
    return NULL;
}

static bool is_stream_aware(const struct ort_ep_factory *base) {
    (void)base;
    return false;
}

static ort_status create_stream(struct ort_ep_factory *base, ort_object memory, ort_object options, void **stream) {
    (void)base;
    (void)memory;
    (void)options;
    *stream = NULL;
    return NULL;
}

/* Looks up the engine's tables; a status has the reason why they cannot be used. Without a table no status
 * can be made: then the only possibility is to report no factory. */
static ort_status look_up(const struct ort_base *base, bool *has_table) {
    unsigned major = 0;
    unsigned minor = 0;
    nnb_ort.api = base->get_api(ORT_VERSION);
    *has_table = nnb_ort.api != NULL;
    if (!*has_table) {
        return NULL;
    }
    if (sscanf(base->get_version(), "%u.%u", &major, &minor) != 2 || major != 1 || minor < OLDEST_MINOR) {
        return nnb_ort_status(ORT_FAIL, "nnburst: onnxruntime %s, expected 1.%d or a later 1.x", base->get_version(),
                              OLDEST_MINOR);
    }
    nnb_ort.has_shapes = minor >= SHAPES_MINOR;
    nnb_ort.ep = ((void *const *(*)(void))nnb_ort.api[ORT_GET_EP_API])();
    return nnb_ort.ep != NULL ? NULL : nnb_ort_status(ORT_FAIL, "nnburst: this onnxruntime has no plugin providers");
}

__attribute__((visibility("default"))) ort_status CreateEpFactories(const char *registered_name,
                                                                    const struct ort_base *base, ort_object logger,
                                                                    struct ort_ep_factory **factories, size_t most,
                                                                    size_t *count);
__attribute__((visibility("default"))) ort_status ReleaseEpFactory(struct ort_ep_factory *factory);

ort_status CreateEpFactories(const char *registered_name, const struct ort_base *base, ort_object logger,
                             struct ort_ep_factory **factories, size_t most, size_t *count) {
    (void)registered_name;
    (void)logger;
    bool has_table = false;
    ORT_TRY(look_up(base, &has_table));
    if (!has_table) { /* before 1.23 the engine passes no logger: what stands in `count` is no pointer of its */
        return NULL;
    }
    *count = 0;
    if (most == 0) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "nnburst: there is no room for a factory");
    }
    struct factory *factory = calloc(1, sizeof *factory);
    if (factory == NULL) {
        return nnb_ort_short_of_memory();
    }
    factory->base = (struct ort_ep_factory){
        .version = ORT_VERSION,
        .get_name = factory_name,
        .get_vendor = vendor,
        .get_devices = get_devices,
        .create_ep = create_ep,
        .release_ep = release_ep,
        .get_vendor_id = vendor_id,
        .get_version = factory_version,
        .create_allocator = create_allocator,
        .release_allocator = release_allocator,
        .create_transfer = create_transfer,
        .is_stream_aware = is_stream_aware,
        .create_stream = create_stream,
    };
    ort_status failed =
        ORT(ORT_CREATE_MEMORY_INFO, const char *, int, uint32_t, int32_t, int, size_t, int, void **)(
            "nnburst pool", ORT_DEVICE_NPU, VENDOR, 0, ORT_MEMORY_HOST_ACCESSIBLE, ALIGNMENT, ORT_DEVICE_ALLOCATOR,
            &factory->memory_info);
    if (failed != NULL) {
        free(factory);
        return failed;
    }
    factories[0] = &factory->base;
    *count = 1;
    return NULL;
}

ort_status ReleaseEpFactory(struct ort_ep_factory *base) {
    struct factory *factory = (struct factory *)(void *)base;
    ORT_RELEASE(ORT_RELEASE_MEMORY_INFO, factory->memory_info);
    free(factory);
    return NULL;
}
