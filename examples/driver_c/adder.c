/* Adds float32 tensors of one shape: ADD of two inputs of a model into an output of it. */
#include <nnburst/executor.h>
#include <stdlib.h>
#include <string.h>

enum { ADD = 0, TENSOR_FLOAT32 = 3 };
struct nnbx_prepared { uint32_t count; struct { uint32_t a, b, to; } sums[]; }; /* arguments by number */
struct nnbx_execution { uint32_t count; struct { const float *a, *b; float *to; uint64_t count; } sums[]; };

static int same_shape(const struct nnbx_operand *a, const struct nnbx_operand *b) {
    return a->type == TENSOR_FLOAT32 && b->type == TENSOR_FLOAT32 && a->rank == b->rank && a->rank > 0 &&
           nnbx_elements(a->dimensions, a->rank) > 0 &&
           memcmp(a->dimensions, b->dimensions, a->rank * sizeof *a->dimensions) == 0;
}

static int32_t supported(nnbx_device *device, const struct nnbx_model *model, uint8_t *found) {
    (void)device;
    const int32_t no_activation = 0;
    for (uint32_t i = 0; i < model->main.operation_count; i++) {
        const struct nnbx_operation *operation = &model->main.operations[i];
        if (operation->type != ADD) continue;
        const struct nnbx_operand *a = nnbx_operand_at(&model->main, operation->inputs[0]);
        const struct nnbx_operand *b = nnbx_operand_at(&model->main, operation->inputs[1]);
        const struct nnbx_operand *activation = nnbx_operand_at(&model->main, operation->inputs[2]);
        const struct nnbx_operand *to = nnbx_operand_at(&model->main, operation->outputs[0]);
        found[i] = same_shape(a, b) && same_shape(a, to) && a->lifetime == NNBX_SUBGRAPH_INPUT &&
                   b->lifetime == NNBX_SUBGRAPH_INPUT && to->lifetime == NNBX_SUBGRAPH_OUTPUT &&
                   activation->lifetime == NNBX_CONSTANT_COPY &&
                   memcmp(activation->value, &no_activation, sizeof no_activation) == 0;
    }
    return NNBX_NONE;
}

static int32_t prepare(nnbx_device *device, const struct nnbx_model *model,
                       const struct nnbx_preparation *how, nnbx_prepared **prepared, char *message) {
    (void)device, (void)how, (void)message;
    const struct nnbx_subgraph *graph = &model->main;
    nnbx_prepared *made = malloc(sizeof *made + graph->operation_count * sizeof made->sums[0]);
    if (!made) return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    made->count = graph->operation_count;
    for (uint32_t i = 0; i < made->count; i++) {
        made->sums[i].a = nnbx_index_of(graph->operations[i].inputs[0], graph->inputs, graph->input_count);
        made->sums[i].b = nnbx_index_of(graph->operations[i].inputs[1], graph->inputs, graph->input_count);
        made->sums[i].to = nnbx_index_of(graph->operations[i].outputs[0], graph->outputs, graph->output_count);
    }
    return *prepared = made, NNBX_NONE;
}

static int32_t bind(nnbx_prepared *prepared, const struct nnbx_request *request,
                    nnbx_execution **execution, char *message) {
    (void)message;
    nnbx_execution *made = malloc(sizeof *made + prepared->count * sizeof made->sums[0]);
    if (!made) return NNBX_RESOURCE_EXHAUSTED_TRANSIENT;
    made->count = prepared->count;
    for (uint32_t i = 0; i < made->count; i++) {
        const struct nnbx_argument *to = nnbx_argument_at(request, request->outputs, prepared->sums[i].to);
        made->sums[i].a = nnbx_argument_at(request, request->inputs, prepared->sums[i].a)->data;
        made->sums[i].b = nnbx_argument_at(request, request->inputs, prepared->sums[i].b)->data;
        made->sums[i].to = to->data;
        made->sums[i].count = nnbx_elements(to->dimensions, to->rank);
        if (!made->sums[i].a || !made->sums[i].b || !to->data) return free(made), NNBX_INVALID_ARGUMENT;
    }
    return *execution = made, NNBX_NONE;
}

static int32_t run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    (void)how, (void)outcome;
    for (uint32_t i = 0; i < execution->count; i++)
        for (uint64_t k = 0; k < execution->sums[i].count; k++)
            execution->sums[i].to[k] = execution->sums[i].a[k] + execution->sums[i].b[k];
    return NNBX_NONE;
}
static void destroy_prepared(nnbx_prepared *prepared) { free(prepared); }
static void destroy_execution(nnbx_execution *execution) { free(execution); }

static const struct nnburst_executor functions = {
    .abi = NNBURST_EXECUTOR_ABI, .size = sizeof functions, .supported = supported, .prepare = prepare,
    .destroy_prepared = destroy_prepared, .bind = bind, .run = run, .destroy_execution = destroy_execution,
};
NNBURST_EXPORT_EXECUTOR(functions)
