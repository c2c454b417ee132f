/* A program in C that makes the calls of LiteRT's interpreter for a delegate, on networks of its own: first on one whose results it
 * computes itself, some cycles of loading and unloading, then on random ones in which anything may be wrong that the engine could
 * hand over: types, extents, sizes, indexes, options, quantisation, parts. It prints how many threads, descriptors and children
 * are left after all but the first cycle, then how random networks ended.
 *
 * Usage: litert_host DELEGATE OPTION VALUE CYCLES SEED NETWORKS */
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../litert_delegate/tflite.h"
#include "leftovers.h"
#include "random.h"

enum { MOST_TENSORS = 24, MOST_NODES = 6, MOST_KERNELS = 8, WIDTH = 8, HEIGHT = 4, ARENA = 2, OPTION_BYTES = 64 };
enum { FLOAT = 1, ADD = 0, CONCATENATION = 2, CONNECTED = 9, SOFTMAX = 25, RELU = 19, RESHAPE = 22, NEG = 59, SHAPE = 77 };

typedef struct tfl_delegate *create_function(const char *const *names, const char *const *values, size_t count,
                                             void (*report)(const char *text));
typedef void destroy_function(struct tfl_delegate *delegate);

/* A network as the engine has it. */
struct network {
    struct tfl_context context; /* first: callbacks get its address */
    struct tfl_tensor tensors[MOST_TENSORS];
    void *memories[MOST_TENSORS]; /* that tensors have; a delegate may forget a tensor's */
    struct tfl_node nodes[MOST_NODES];
    struct tfl_registration registrations[MOST_NODES];
    uint8_t options[MOST_NODES][OPTION_BYTES];
    int node_count;
    struct tfl_ints *plan;
    struct tfl_partition parts[MOST_NODES];
    int part_count;
    struct tfl_registration kernel;
    struct tfl_node kernels[MOST_KERNELS];
    int kernel_count;
    bool is_hostile;
};

static uint64_t state;
static bool is_quiet;
static unsigned long outcomes[4]; /* refused, left whole, failed, run */

static uint64_t any(uint64_t bound) { return next_random(&state) % bound; }
static bool once_in(uint64_t count) { return any(count) == 0; }

static void fail(const char *why) {
    (void)fprintf(stderr, "%s\n", why);
    exit(1);
}

static struct tfl_ints *make_ints(int count, const int *items) {
    struct tfl_ints *made = calloc(1, sizeof *made + (size_t)count * sizeof(int));
    if (made == NULL) {
        fail("memory is short");
    }
    made->size = count;
    for (int i = 0; i < count; i++) {
        made->data[i] = items[i];
    }
    return made;
}

/* -- the engine's functions ------------------------------------------------------------------------------- */

static struct network *network_of(struct tfl_context *context) { return (struct network *)(void *)context; }

static void report(struct tfl_context *context, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!network_of(context)->is_hostile) {
        (void)fprintf(stderr, "%s\n", text);
    }
}

static int get_plan(struct tfl_context *context, struct tfl_ints **nodes) {
    struct network *network = network_of(context);
    *nodes = network->is_hostile && once_in(200) ? NULL : network->plan;
    return network->is_hostile && once_in(200) ? TFL_ERROR : TFL_OK;
}

static int get_node(struct tfl_context *context, int index, struct tfl_node **node, struct tfl_registration **registration) {
    struct network *network = network_of(context);
    if (index < 0 || index >= network->node_count) {
        return TFL_ERROR;
    }
    *node = &network->nodes[index];
    *registration = &network->registrations[index];
    return TFL_OK;
}

static bool lists(const struct tfl_ints *list, int item) {
    for (int i = 0; list != NULL && i < list->size; i++) {
        if (list->data[i] == item) {
            return true;
        }
    }
    return false;
}

static void forget_parts(struct network *network) {
    for (int i = 0; i < network->part_count; i++) {
        free(network->parts[i].nodes);
        free(network->parts[i].inputs);
        free(network->parts[i].outputs);
    }
    network->part_count = 0;
}

/* Inputs and outputs of a part, whatever is constant among them too, as the engine has it. */
static void add_border(const struct network *network, struct tfl_partition *part) {
    int inputs[MOST_TENSORS] = {0};
    int outputs[MOST_TENSORS] = {0};
    int input_count = 0;
    int output_count = 0;
    for (int tensor = 0; tensor < MOST_TENSORS; tensor++) {
        bool is_read = false;
        bool is_written = false;
        bool is_read_elsewhere = false;
        for (int i = 0; i < network->node_count; i++) {
            const bool is_inside = lists(part->nodes, i);
            const bool reads = lists(network->nodes[i].inputs, tensor);
            is_read |= is_inside && reads;
            is_read_elsewhere |= !is_inside && reads;
            is_written |= is_inside && lists(network->nodes[i].outputs, tensor);
        }
        if (is_read && !is_written) {
            inputs[input_count++] = tensor;
        }
        if (is_written && (is_read_elsewhere || !is_read)) {
            outputs[output_count++] = tensor;
        }
    }
    part->inputs = make_ints(input_count, inputs);
    part->outputs = make_ints(output_count, outputs);
}

/* Cuts the nodes into runs of neighbours. */
static void cut(struct network *network, const struct tfl_ints *nodes) {
    forget_parts(network);
    for (int i = 0; i < nodes->size;) {
        int end = i + 1;
        while (end < nodes->size && nodes->data[end] == nodes->data[end - 1] + 1) {
            end++;
        }
        struct tfl_partition *part = &network->parts[network->part_count++];
        *part = (struct tfl_partition){.nodes = make_ints(end - i, nodes->data + i)};
        add_border(network, part);
        i = end;
    }
}

static int preview(struct tfl_context *context, const struct tfl_ints *nodes, struct tfl_partition **parts, int *count) {
    struct network *network = network_of(context);
    cut(network, nodes);
    *parts = network->parts;
    *count = network->part_count;
    if (network->is_hostile && once_in(40)) {
        struct tfl_ints *const wrong[] = {network->parts[0].nodes, network->parts[0].inputs, network->parts[0].outputs};
        struct tfl_ints *list = wrong[any(3)];
        if (network->part_count != 0 && list->size != 0) {
            list->data[any((uint64_t)list->size)] = (int)any(40) - 8;
        }
    }
    if (network->is_hostile && once_in(100)) {
        *count = (int)any(3) - 1;
        *parts = once_in(2) ? NULL : *parts;
        *count = *count > network->part_count ? network->part_count : *count;
    }
    return network->is_hostile && once_in(200) ? TFL_ERROR : TFL_OK;
}

static int replace(struct tfl_context *context, struct tfl_registration registration, const struct tfl_ints *nodes,
                   struct tfl_delegate *delegate) {
    struct network *network = network_of(context);
    cut(network, nodes);
    network->kernel = registration;
    for (int i = 0; i < network->part_count; i++) {
        struct tfl_partition *part = &network->parts[i];
        struct tfl_node *kernel = &network->kernels[network->kernel_count++];
        part->delegate = delegate;
        *kernel = (struct tfl_node){.inputs = part->inputs, .outputs = part->outputs, .delegate = delegate};
        kernel->user_data = registration.init(context, (const char *)part, 0);
    }
    return TFL_OK;
}

static void allocate(struct network *network, struct tfl_tensor *tensor) {
    void **memory = &network->memories[tensor - network->tensors];
    size_t bytes = sizeof(float);
    for (int i = 0; i < tensor->dimensions->size; i++) {
        bytes *= (size_t)tensor->dimensions->data[i];
    }
    free(*memory);
    *memory = tensor->data = calloc(1, bytes);
    tensor->bytes = bytes;
}

static int resize(struct tfl_context *context, struct tfl_tensor *tensor, struct tfl_ints *dimensions) {
    if (tensor < context->tensors || tensor >= context->tensors + MOST_TENSORS || dimensions->size < 0) {
        fail("a tensor is resized that is not there");
    }
    free(tensor->dimensions);
    tensor->dimensions = dimensions;
    allocate(network_of(context), tensor);
    return TFL_OK;
}

static int acquire(struct tfl_context *context, int subgraph, struct tfl_context **acquired) {
    *acquired = context;
    return subgraph == 0 ? TFL_OK : TFL_ERROR;
}

static int release(struct tfl_context *context, int subgraph) {
    (void)context;
    return subgraph == 0 ? TFL_OK : TFL_ERROR;
}

/* -- networks --------------------------------------------------------------------------------------------- */

static void add_tensor(struct network *network, int index, int rows, int columns, bool is_constant) {
    const int extents[] = {rows, columns};
    struct tfl_tensor *tensor = &network->tensors[index];
    *tensor = (struct tfl_tensor){
        .type = FLOAT, .dimensions = make_ints(rows == 0 ? 1 : 2, rows == 0 ? extents + 1 : extents), .allocation = ARENA};
    allocate(network, tensor);
    for (size_t i = 0; is_constant && i < tensor->bytes / sizeof(float); i++) {
        ((float *)tensor->data)[i] = (float)any(200) / 100.0f - 1.0f;
    }
    tensor->allocation = is_constant ? TFL_READ_ONLY : ARENA;
}

static void add_node(struct network *network, int code, int version, int input_count, const int *inputs, int output) {
    const int index = network->node_count++;
    network->registrations[index] = (struct tfl_registration){.code = code, .version = version};
    network->nodes[index] = (struct tfl_node){
        .inputs = make_ints(input_count, inputs), .outputs = make_ints(1, &output), .options = network->options[index]};
}

/* y = softmax(relu(x w + b)) with a node between them that is not claimed if `is_cut`. */
static void make_network(struct network *network, int rows, bool is_cut) {
    const float beta = 1.0f;
    *network = (struct network){.context = {
        .tensor_count = MOST_TENSORS, .plan = get_plan, .resize = resize, .report = report, .node = get_node,
        .replace = replace, .preview = preview, .acquire = acquire, .release = release}};
    network->context.tensors = network->tensors;
    add_tensor(network, 0, rows, WIDTH, false);
    add_tensor(network, 1, HEIGHT, WIDTH, true);
    add_tensor(network, 2, 0, HEIGHT, true);
    for (int i = 3; i < MOST_TENSORS; i++) {
        add_tensor(network, i, rows, HEIGHT, false);
    }
    add_node(network, CONNECTED, 1, 3, (const int[]){0, 1, 2}, 3);
    add_node(network, RELU, 1, 1, (const int[]){3}, 4);
    if (is_cut) {
        add_node(network, SHAPE, 1, 1, (const int[]){4}, 7);
    }
    add_node(network, SOFTMAX, 1, 1, (const int[]){4}, 5);
    memcpy(network->options[network->node_count - 1], &beta, sizeof beta);
    int order[MOST_NODES] = {0};
    for (int i = 0; i < network->node_count; i++) {
        order[i] = i;
    }
    network->plan = make_ints(network->node_count, order);
}

static void free_network(struct network *network) {
    for (int i = 0; i < network->kernel_count; i++) {
        network->kernel.free(&network->context, network->kernels[i].user_data);
    }
    forget_parts(network);
    for (int i = 0; i < network->node_count; i++) {
        free(network->nodes[i].inputs);
        free(network->nodes[i].outputs);
    }
    for (int i = 0; i < MOST_TENSORS; i++) {
        struct tfl_affine *affine = network->tensors[i].quantization;
        if (affine != NULL) {
            free(affine->scales);
            free(affine->zero_points);
            free(affine);
        }
        free(network->tensors[i].dimensions);
        free(network->memories[i]);
    }
    free(network->plan);
}

/* Prepares all kernels, then invokes them. */
static bool prepare_kernels(struct network *network) {
    for (int i = 0; i < network->kernel_count; i++) {
        if (network->kernel.prepare(&network->context, &network->kernels[i]) != TFL_OK) {
            return false;
        }
    }
    return true;
}

static bool invoke(struct network *network) {
    for (int i = 0; i < network->kernel_count; i++) {
        if (network->kernel.invoke(&network->context, &network->kernels[i]) != TFL_OK) {
            return false;
        }
    }
    return true;
}

/* Compares the result with what it is by definition. */
static void check_result(const struct network *network, int rows) {
    const float *x = network->tensors[0].data, *w = network->tensors[1].data, *b = network->tensors[2].data;
    const float *found = network->tensors[5].data;
    for (int row = 0; row < rows; row++) {
        float sums[HEIGHT];
        float total = 0.0f;
        for (int i = 0; i < HEIGHT; i++) {
            sums[i] = b[i];
            for (int k = 0; k < WIDTH; k++) {
                sums[i] += x[row * WIDTH + k] * w[i * WIDTH + k];
            }
            sums[i] = expf(sums[i] < 0.0f ? 0.0f : sums[i]);
            total += sums[i];
        }
        for (int i = 0; i < HEIGHT; i++) {
            if (fabsf(found[row * HEIGHT + i] - sums[i] / total) > 1e-5f) {
                fail("a result is wrong");
            }
        }
    }
}

static void run_rows(struct network *network, int rows) {
    const int extents[] = {rows, WIDTH};
    if (resize(&network->context, &network->tensors[0], make_ints(2, extents)) != TFL_OK || !prepare_kernels(network)) {
        fail("the kernels are not prepared");
    }
    for (int i = 0; i < rows * WIDTH; i++) {
        ((float *)network->tensors[0].data)[i] = (float)any(200) / 100.0f - 1.0f;
    }
    if (!invoke(network)) {
        fail("the kernels do not run");
    }
    check_result(network, rows);
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fail(dlerror());
    }
    return found;
}

static void say(const char *text) {
    if (!is_quiet) {
        (void)fprintf(stderr, "%s\n", text);
    }
}

static struct tfl_delegate *load(char **words, void **library, destroy_function **destroy) {
    create_function *create;
    *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) {
        fail(dlerror());
    }
    void *found = find(*library, "tflite_plugin_create_delegate");
    memcpy(&create, &found, sizeof create);
    found = find(*library, "tflite_plugin_destroy_delegate");
    memcpy(destroy, &found, sizeof *destroy);
    const char *const names[] = {words[2], "num_threads"};
    const char *const values[] = {words[3], "1"};
    struct tfl_delegate *delegate = create(names, values, 2, say);
    if (delegate == NULL) {
        fail("the delegate is not made");
    }
    return delegate;
}

static void cycle(char **words) {
    void *library;
    destroy_function *destroy;
    struct network network;
    struct tfl_delegate *delegate = load(words, &library, &destroy);
    make_network(&network, 2, false);
    if (delegate->prepare(&network.context, delegate) != TFL_OK || network.kernel_count != 1) {
        fail("the network is not claimed whole");
    }
    run_rows(&network, 2);
    run_rows(&network, 5);
    run_rows(&network, 1);
    free_network(&network);
    destroy(delegate);
    if (dlclose(library) != 0) {
        fail(dlerror());
    }
}

/* -- what may be wrong ------------------------------------------------------------------------------------ */

static int any_number(void) {
    static const int numbers[] = {-1, 0, 1, 2, 3, 4, 5, 8, 9, 16, 22, 59, 127, 128, 4097, 1 << 20, INT32_MAX, INT32_MIN};
    return once_in(3) ? (int)any(24) : numbers[any(sizeof numbers / sizeof *numbers)];
}

static void quantise(struct tfl_tensor *tensor) {
    struct tfl_affine *affine = calloc(1, sizeof *affine);
    const int count = (int)any(6);
    if (affine == NULL) {
        fail("memory is short");
    }
    affine->dimension = any_number();
    affine->scales = once_in(6) ? NULL : (struct tfl_floats *)(void *)make_ints(count, (const int[6]){0x3f800000, 1, 0, -1, 2, 3});
    affine->zero_points = once_in(6) ? NULL : make_ints(once_in(3) ? 1 : count, (const int[6]){0, 128, -1, 5, 6, 7});
    tensor->quantization = affine;
    tensor->quantization_kind = once_in(4) ? any_number() : TFL_AFFINE;
}

static void spoil_tensor(struct tfl_tensor *tensor) {
    switch (any(10)) {
    case 0: tensor->type = any_number(); break;
    case 1: tensor->bytes = once_in(2) ? any(tensor->bytes + 1) : 0; break;
    case 2: tensor->data = NULL; break;
    case 3: tensor->is_variable = true; break;
    case 4: tensor->sparsity = tensor->name == NULL ? &state : NULL; break;
    case 5: free(tensor->dimensions); tensor->dimensions = NULL; break;
    case 6: tensor->allocation = any_number(); break;
    case 7:
        if (tensor->quantization == NULL) {
            quantise(tensor);
        }
        break;
    case 8: /* extents and bytes need not fit: what is read is the smaller of both, or it is refused */
        if (tensor->dimensions != NULL && tensor->dimensions->size > 0) {
            tensor->dimensions->data[0] = any_number();
        }
        break;
    default: /* a size is that of the list, or none that a list can have */
        if (tensor->dimensions != NULL) {
            tensor->dimensions->size = once_in(2) ? -1 - (int)any(1000) : 4097;
        }
        break;
    }
}

static void spoil_node(struct network *network, int index) {
    struct tfl_node *node = &network->nodes[index];
    struct tfl_ints *list = once_in(3) ? node->outputs : node->inputs;
    switch (any(6)) {
    case 0: network->registrations[index].code = any_number(); break;
    case 1: network->registrations[index].version = any_number(); break;
    case 2: node->options = once_in(2) ? NULL : node->options; break;
    case 3:
        for (size_t i = 0; i < OPTION_BYTES; i += 4) {
            const int number = any_number();
            memcpy(network->options[index] + i, &number, sizeof number);
        }
        break;
    case 4: list->data[any((uint64_t)list->size)] = any_number(); break;
    default: network->registrations[index].custom_name = once_in(2) ? "Custom" : NULL; break;
    }
}

/* Has any tensors and nodes be wrong; those with one output and inputs that are there most of all. */
static void make_random(struct network *network) {
    static const int codes[] = {ADD, CONCATENATION, SOFTMAX, RELU, RESHAPE, NEG, SHAPE};
    make_network(network, 1 + (int)any(4), once_in(3));
    network->is_hostile = true;
    if (once_in(2)) {
        const int code = codes[any(sizeof codes / sizeof *codes)];
        const int inputs[] = {5, 4};
        add_node(network, code, 1, code == ADD || code == CONCATENATION ? 2 : 1, inputs, 6);
        free(network->plan);
        network->plan = make_ints(network->node_count, (const int[MOST_NODES]){0, 1, 2, 3, 4, 5});
    }
    for (uint64_t i = any(3); i != 0; i--) {
        spoil_tensor(&network->tensors[any(8)]);
    }
    for (uint64_t i = any(3); i != 0; i--) {
        spoil_node(network, (int)any((uint64_t)network->node_count));
    }
}

static void run_random(struct tfl_delegate *delegate) {
    struct network network;
    make_random(&network);
    if (delegate->prepare(&network.context, delegate) != TFL_OK) {
        outcomes[0]++;
    } else if (network.kernel_count == 0) {
        outcomes[1]++;
    } else {
        bool works = true;
        for (int i = 0; i < 4; i++) {
            if (once_in(2)) {
                spoil_tensor(&network.tensors[any(8)]);
            }
            works = (once_in(8) || prepare_kernels(&network)) && invoke(&network) && works;
        }
        outcomes[works ? 3 : 2]++;
    }
    free_network(&network);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        (void)fprintf(stderr, "usage: %s DELEGATE OPTION VALUE CYCLES SEED NETWORKS\n", argv[0]);
        return 2;
    }
    void *library;
    destroy_function *destroy;
    state = strtoull(argv[5], NULL, 10) * 2 + 1;
    cycle(argv);
    const int threads = entries("/proc/self/task");
    const int descriptors = entries("/proc/self/fd");
    for (int i = 0; i < atoi(argv[4]); i++) {
        cycle(argv);
    }
    (void)printf("%d %d %d\n", entries("/proc/self/task") - threads, entries("/proc/self/fd") - descriptors, children());
    is_quiet = true;
    struct tfl_delegate *delegate = load(argv, &library, &destroy);
    for (long i = atol(argv[6]); i > 0; i--) {
        run_random(delegate);
    }
    destroy(delegate);
    (void)printf("%lu refused, %lu left, %lu failed, %lu run\n", outcomes[0], outcomes[1], outcomes[2], outcomes[3]);
    return 0;
}
