/* The delegate: the functions that LiteRT finds in the library, the nodes that it claims, and its kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "litert_delegate/partition.h"

#define NAME "NnburstDelegate"
#define DEFAULT_EXECUTOR "litert"

enum { MOST_PLAN = 1 << 20 };

struct delegate {
    struct tfl_delegate base; /* first: the engine has its address */
    struct nnb_driver driver;
    bool falls_back;
    pthread_mutex_t lock;           /* one interpreter is prepared at a time */
    struct nnb_partition *prepared; /* that no kernel has taken yet */
};

/* -- kernels ---------------------------------------------------------------------------------------------- */

/* Finds the link to the partition that was prepared from these nodes; a link to NULL without one. */
static struct nnb_partition **find_prepared(struct delegate *delegate, const struct tfl_ints *nodes) {
    struct nnb_partition **link = &delegate->prepared;
    while (*link != NULL && !nnb_partition_has(*link, nodes)) {
        link = nnb_partition_next(*link);
    }
    return link;
}

/* Takes the partition that was prepared from these nodes. The engine calls this while it replaces nodes for
 * `prepare`. */
static void *kernel_init(struct tfl_context *context, const char *parameters, size_t length) {
    const struct tfl_partition *given = (const struct tfl_partition *)(const void *)parameters;
    struct delegate *delegate = (struct delegate *)(void *)given->delegate;
    (void)context;
    (void)length;
    struct nnb_partition **link = find_prepared(delegate, given->nodes);
    struct nnb_partition *partition = *link;
    if (partition != NULL) {
        *link = *nnb_partition_next(partition);
    }
    return partition;
}

static void kernel_free(struct tfl_context *context, void *data) {
    (void)context;
    nnb_partition_close(data);
}

/* Calls a function on a kernel's partition, and reports the reason of a failure. */
static int act_on(struct tfl_context *context, const struct tfl_node *node,
                  bool (*act)(struct nnb_partition *, struct tfl_context *, struct nnb_reason *)) {
    struct nnb_reason reason = {"nnburst: these nodes were not prepared"};
    if (node->user_data != NULL && act(node->user_data, context, &reason)) {
        return TFL_OK;
    }
    context->report(context, "%s", reason.text);
    return TFL_ERROR;
}

static int kernel_prepare(struct tfl_context *context, struct tfl_node *node) {
    return act_on(context, node, nnb_partition_adapt);
}

static int kernel_invoke(struct tfl_context *context, struct tfl_node *node) {
    return act_on(context, node, nnb_partition_run);
}

/* -- claims ----------------------------------------------------------------------------------------------- */

/* The nodes to claim, and the reason for the first node that is not claimed. */
struct claims {
    struct tfl_ints *nodes;
    int left;
    struct nnb_reason reason;
};

static void leave(struct claims *claims, const struct nnb_reason *reason) {
    if (claims->left == 0) {
        claims->reason = *reason;
    }
    claims->left++;
}

/* Claims all nodes of the plan that can be written. */
static bool claim_writable(struct tfl_context *context, struct claims *claims, struct nnb_reason *reason) {
    struct tfl_ints *plan = NULL;
    if (context->plan(context, &plan) != TFL_OK || plan == NULL || plan->size < 0 || plan->size > MOST_PLAN) {
        return nnb_refuse(reason, "nnburst: the engine has no plan");
    }
    claims->nodes = calloc(1, sizeof *claims->nodes + (size_t)plan->size * sizeof(int));
    if (claims->nodes == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    const int count = plan->size;
    memcpy(claims->nodes->data, plan->data, (size_t)count * sizeof(int)); /* the plan is the engine's until the next call */
    for (int i = 0; i < count; i++) {
        struct nnb_reason why;
        const int node = claims->nodes->data[i];
        if (nnb_node_check(context, node, &why)) {
            claims->nodes->data[claims->nodes->size++] = node;
        } else {
            leave(claims, &why);
        }
    }
    return true;
}

static void unclaim(struct claims *claims, const struct tfl_ints *nodes, const struct nnb_reason *why) {
    int kept = 0;
    for (int i = 0; i < claims->nodes->size; i++) {
        bool is_refused = false;
        for (int k = 0; k < nodes->size; k++) {
            is_refused |= nodes->data[k] == claims->nodes->data[i];
        }
        if (is_refused) {
            leave(claims, why);
        } else {
            claims->nodes->data[kept++] = claims->nodes->data[i];
        }
    }
    claims->nodes->size = kept;
}

/* Has the driver prepare each part of the claims, and drops parts that it refuses. Sets `*again` if it
 * refused any, since the remaining claims may form other parts. */
static bool prepare_parts(struct delegate *delegate, struct tfl_context *context, struct claims *claims, bool *again,
                          struct nnb_reason *reason) {
    struct tfl_partition *parts = NULL;
    int count = 0;
    *again = false;
    if (context->preview(context, claims->nodes, &parts, &count) != TFL_OK || count < 0 || (count > 0 && parts == NULL)) {
        return nnb_refuse(reason, "nnburst: the engine does not say into which parts the nodes fall");
    }
    for (int i = 0; i < count; i++) {
        struct nnb_partition *partition = NULL;
        bool is_refused = false;
        if (*find_prepared(delegate, parts[i].nodes) != NULL) {
            continue;
        }
        if (nnb_partition_open(&delegate->driver, context, &parts[i], &partition, &is_refused, reason)) {
            *nnb_partition_next(partition) = delegate->prepared;
            delegate->prepared = partition;
        } else if (is_refused) {
            unclaim(claims, parts[i].nodes, reason);
            *again = true;
        } else {
            return false;
        }
    }
    return true;
}

/* Whether a context is that of the main network. Branches and bodies of loops are left to LiteRT, which
 * resizes them while it runs and then may give their nodes to other delegates. */
static bool is_main(struct tfl_context *context) {
    struct tfl_context *main = NULL;
    if (context->acquire(context, 0, &main) != TFL_OK) {
        return false;
    }
    if (main != context) {
        (void)context->release(context, 0);
    }
    return main == context;
}

static bool claim(struct delegate *delegate, struct tfl_context *context, struct claims *claims,
                  struct nnb_reason *reason) {
    if (!claim_writable(context, claims, reason)) {
        return false;
    }
    for (bool again = true; again && claims->nodes->size != 0;) {
        if (!prepare_parts(delegate, context, claims, &again, reason)) {
            return false;
        }
    }
    if (claims->left != 0 && !delegate->falls_back) {
        return nnb_refuse(reason, "nnburst: fallback is 0, and %d nodes are not the driver's: %.900s", claims->left,
                          claims->reason.text);
    }
    if (claims->left != 0) { /* the engine names its own delegates there, too */
        (void)fprintf(stderr, "nnburst: %d nodes are left to LiteRT: %s\n", claims->left, claims->reason.text);
    }
    static const struct tfl_registration kernel = {
        .init = kernel_init,
        .free = kernel_free,
        .prepare = kernel_prepare,
        .invoke = kernel_invoke,
        .code = TFL_DELEGATE_CODE,
        .custom_name = NAME,
        .version = 1,
    };
    return claims->nodes->size == 0 ||
           context->replace(context, kernel, claims->nodes, &delegate->base) == TFL_OK ||
           nnb_refuse(reason, "nnburst: the engine does not replace the nodes");
}

static int prepare(struct tfl_context *context, struct tfl_delegate *base) {
    struct delegate *delegate = (struct delegate *)(void *)base;
    struct claims claims = {0};
    struct nnb_reason reason;
    if (!is_main(context)) {
        return TFL_OK;
    }
    (void)pthread_mutex_lock(&delegate->lock);
    const bool claimed = claim(delegate, context, &claims, &reason);
    while (delegate->prepared != NULL) { /* of parts that have changed since */
        struct nnb_partition *partition = delegate->prepared;
        delegate->prepared = *nnb_partition_next(partition);
        nnb_partition_close(partition);
    }
    (void)pthread_mutex_unlock(&delegate->lock);
    free(claims.nodes);
    if (!claimed) {
        context->report(context, "%s", reason.text);
    }
    return claimed ? TFL_OK : TFL_DELEGATE_ERROR;
}

/* -- beginning and end ------------------------------------------------------------------------------------ */

static bool read_options(const char *const *names, const char *const *values, size_t count,
                         struct nnb_driver_options *options, bool *falls_back, struct nnb_reason *reason) {
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        uint64_t number = 0;
        if (names == NULL || values == NULL || names[i] == NULL || values[i] == NULL) {
            return nnb_refuse(reason, "nnburst: option %zu has no name or no value", i);
        }
        if (strcmp(names[i], "fallback") == 0) {
            if (!nnb_read_number("fallback", values[i], 0, 1, &number, reason)) {
                return false;
            }
            *falls_back = number != 0;
        } else if (!nnb_driver_read_option(options, names[i], values[i], &known, reason)) {
            return false;
        } else if (!known) {
            return nnb_refuse(reason, "nnburst: option '%.64s', expected fallback, " NNB_DRIVER_OPTIONS, names[i]);
        }
    }
    return true;
}

__attribute__((visibility("default"))) struct tfl_delegate *tflite_plugin_create_delegate(
    const char *const *names, const char *const *values, size_t count, void (*report)(const char *text));
__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(struct tfl_delegate *base);

struct tfl_delegate *tflite_plugin_create_delegate(const char *const *names, const char *const *values, size_t count,
                                                   void (*report)(const char *text)) {
    struct nnb_driver_options options;
    struct nnb_reason reason = {"nnburst: memory is short"};
    struct delegate *delegate = calloc(1, sizeof *delegate);
    nnb_driver_options_init(&options);
    if (delegate != NULL) {
        delegate->falls_back = true;
        delegate->base.prepare = prepare;
        delegate->base.flags = TFL_ALLOWS_DYNAMIC | TFL_WANTS_EXTENTS;
        if (!read_options(names, values, count, &options, &delegate->falls_back, &reason) ||
            !nnb_driver_open(&delegate->driver, &options, DEFAULT_EXECUTOR, &reason)) {
            free(delegate);
            delegate = NULL;
        } else {
            delegate->base.data = delegate;
            (void)pthread_mutex_init(&delegate->lock, NULL);
        }
    }
    nnb_driver_options_free(&options);
    if (delegate == NULL && report != NULL) {
        report(reason.text);
    }
    return delegate == NULL ? NULL : &delegate->base;
}

void tflite_plugin_destroy_delegate(struct tfl_delegate *base) {
    struct delegate *delegate = (struct delegate *)(void *)base;
    if (delegate != NULL) {
        nnb_driver_close(&delegate->driver);
        (void)pthread_mutex_destroy(&delegate->lock);
        free(delegate);
    }
}
