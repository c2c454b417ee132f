/* A vendor's delegate made up in software: it takes ADD of float32 and adds a number of its own, so that a result shows what
 * computed it. Options: bias=NUMBER; refuse=1, no delegate; abort=1, the end of the process at the first run. */
#include <stdlib.h>
#include <string.h>

#include "tflite.h"

enum { ADD = 0, FLOAT32 = 1 };

struct delegate {
    struct tfl_delegate base; /* first: the engine has its address */
    float bias;
    bool aborts;
};

static void *kernel_init(struct tfl_context *context, const char *parameters, size_t length) {
    (void)context;
    (void)length;
    return ((const struct tfl_partition *)(const void *)parameters)->delegate;
}

static void kernel_free(struct tfl_context *context, void *data) {
    (void)context;
    (void)data;
}

static int kernel_prepare(struct tfl_context *context, struct tfl_node *node) {
    (void)context;
    (void)node;
    return TFL_OK;
}

static int kernel_invoke(struct tfl_context *context, struct tfl_node *node) {
    const struct delegate *delegate = node->user_data;
    const struct tfl_tensor *x = &context->tensors[node->inputs->data[0]];
    const struct tfl_tensor *y = &context->tensors[node->inputs->data[1]];
    const struct tfl_tensor *made = &context->tensors[node->outputs->data[0]];
    if (delegate->aborts) {
        abort();
    }
    for (size_t i = 0; i < made->bytes / sizeof(float); i++) {
        ((float *)made->data)[i] = ((const float *)x->data)[i] + ((const float *)y->data)[i] + delegate->bias;
    }
    return TFL_OK;
}

static bool is_taken(struct tfl_context *context, int number) {
    struct tfl_node *node = NULL;
    struct tfl_registration *registration = NULL;
    if (context->node(context, number, &node, &registration) != TFL_OK || registration->code != ADD) {
        return false;
    }
    const struct tfl_tensor *x = &context->tensors[node->inputs->data[0]];
    const struct tfl_tensor *y = &context->tensors[node->inputs->data[1]];
    return x->type == FLOAT32 && x->bytes == y->bytes;
}

static int prepare(struct tfl_context *context, struct tfl_delegate *delegate) {
    struct tfl_registration kernel = {.init = kernel_init,
                                      .free = kernel_free,
                                      .prepare = kernel_prepare,
                                      .invoke = kernel_invoke,
                                      .code = TFL_DELEGATE_CODE,
                                      .custom_name = "AddingDelegate",
                                      .version = 1};
    struct tfl_ints *plan = NULL;
    if (context->plan(context, &plan) != TFL_OK) {
        return TFL_ERROR;
    }
    struct tfl_ints *nodes = calloc(1, sizeof *nodes + (size_t)plan->size * sizeof(int));
    if (nodes == NULL) {
        return TFL_ERROR;
    }
    for (int i = 0; i < plan->size; i++) {
        if (is_taken(context, plan->data[i])) {
            nodes->data[nodes->size++] = plan->data[i];
        }
    }
    int status = nodes->size == 0 ? TFL_OK : context->replace(context, kernel, nodes, delegate);
    free(nodes);
    return status;
}

struct tfl_delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count, void (*report)(const char *)) {
    struct delegate *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    made->base.prepare = prepare;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i], "bias") == 0) {
            made->bias = strtof(values[i], NULL);
        } else if (strcmp(keys[i], "abort") == 0) {
            made->aborts = true;
        } else {
            report("no device");
            free(made);
            return NULL;
        }
    }
    return &made->base;
}

void tflite_plugin_destroy_delegate(struct tfl_delegate *delegate) {
    free(delegate);
}
