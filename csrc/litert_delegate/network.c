#include "litert_delegate/network.h"

#include <stdlib.h>
#include <string.h>

#include "litert_delegate/operators.h"

enum { SCHEMA_VERSION = 3, MOST_TENSORS = 4096, MOST_NODES = 1 << 20, OLD_CODES = 127, BYTES_ALIGNMENT = 16 };
/* Numbers of fields. */
enum { MODEL_VERSION = 0, MODEL_CODES = 1, MODEL_SUBGRAPHS = 2, MODEL_BUFFERS = 4 };
enum { CODE_OLD = 0, CODE_VERSION = 2, CODE_CODE = 3 };
enum { SUBGRAPH_TENSORS = 0, SUBGRAPH_INPUTS = 1, SUBGRAPH_OUTPUTS = 2, SUBGRAPH_OPERATORS = 3 };
enum { OPERATOR_CODE = 0, OPERATOR_INPUTS = 1, OPERATOR_OUTPUTS = 2, OPERATOR_UNION = 3, OPERATOR_OPTIONS = 4 };
enum { BUFFER_DATA = 0 };
enum { EXPAND_DIMS = 70 };

/* -- nodes ------------------------------------------------------------------------------------------------ */

/* A node and its registration, which both belong to the engine. */
struct use {
    struct tfl_node *node;
    const struct nnb_operator *operator;
    int32_t code;
    int version;
};

static bool look_up(struct tfl_context *context, int index, struct use *use, struct nnb_reason *reason) {
    struct tfl_registration *registration = NULL;
    use->node = NULL;
    if (context->node(context, index, &use->node, &registration) != TFL_OK || use->node == NULL || registration == NULL) {
        return nnb_refuse(reason, "node %d is not there", index);
    }
    use->code = registration->code;
    use->version = registration->version;
    use->operator = nnb_operator_find(registration->code);
    if (use->operator == NULL || use->node->delegate != NULL) {
        const char *name = registration->custom_name;
        return name != NULL ? nnb_refuse(reason, "node %d: operator %.64s", index, name)
                            : nnb_refuse(reason, "node %d: operator number %d", index, registration->code);
    }
    return true;
}

static bool check_tensors(struct tfl_context *context, const struct tfl_ints *tensors, const char *what, bool may_be_missing,
                          struct nnb_reason *reason) {
    if (!nnb_ints_check(tensors, MOST_TENSORS, what, reason)) {
        return false;
    }
    for (int i = 0; i < tensors->size; i++) {
        if (may_be_missing && tensors->data[i] == TFL_NO_TENSOR) {
            continue;
        }
        if (!nnb_tensor_check(context, tensors->data[i], reason)) {
            return false;
        }
    }
    return true;
}

/* With 16-bit inputs, the bias's type gives the number of bits in which products are added up; without a bias
 * an option does, which only later versions of the engine have. */
static bool check_bias(struct tfl_context *context, const struct use *use, struct nnb_reason *reason) {
    const struct tfl_ints *inputs = use->node->inputs;
    bool has_16_bits = false;
    for (int i = 0; i < inputs->size; i++) {
        has_16_bits |= inputs->data[i] != TFL_NO_TENSOR && context->tensors[inputs->data[i]].type == TFL_INT16;
    }
    return !has_16_bits || !nnb_operator_wants_bias(use->operator) ||
           nnb_refuse(reason, "16-bit inputs of this operator are not written");
}

bool nnb_node_check(struct tfl_context *context, int index, struct nnb_reason *reason) {
    struct use use;
    struct nnb_reason why;
    if (!look_up(context, index, &use, reason)) {
        return false;
    }
    return (check_tensors(context, use.node->inputs, "inputs", true, &why) &&
            check_tensors(context, use.node->outputs, "outputs", false, &why) && check_bias(context, &use, &why) &&
            nnb_operator_check(use.operator, use.version, use.node->options, &why)) ||
           nnb_refuse(reason, "node %d (%s): %.900s", index, nnb_operator_name(use.operator), why.text);
}

/* -- a file ----------------------------------------------------------------------------------------------- */

/* The state of a file that is being written. */
struct draft {
    struct tfl_context *context;
    struct use *uses;
    size_t use_count;
    int32_t *numbers; /* of the context's tensors in the file, from 0 on; -1 of one that is not in it */
    int *tensors;     /* the other way round */
    size_t tensor_count;
    size_t *codes; /* of each use: the first use with its code and version */
    uint32_t *code_numbers;
    uint32_t code_count;
    size_t expanded_count; /* outputs; see are_expanded of the network */
};

static void free_draft(struct draft *draft) {
    free(draft->uses);
    free(draft->numbers);
    free(draft->tensors);
    free(draft->codes);
    free(draft->code_numbers);
}

static void number_tensors(struct draft *draft, const struct tfl_ints *tensors) {
    for (int i = 0; i < tensors->size; i++) {
        const int index = tensors->data[i];
        if (index != TFL_NO_TENSOR && draft->numbers[index] < 0) {
            draft->numbers[index] = (int32_t)draft->tensor_count;
            draft->tensors[draft->tensor_count++] = index;
        }
    }
}

static void number_codes(struct draft *draft) {
    for (size_t i = 0; i < draft->use_count; i++) {
        size_t first = 0;
        while (draft->uses[first].code != draft->uses[i].code || draft->uses[first].version != draft->uses[i].version) {
            first++;
        }
        draft->codes[i] = first;
        draft->code_numbers[i] = first == i ? draft->code_count++ : draft->code_numbers[first];
    }
}

static bool make_draft(struct tfl_context *context, const struct tfl_ints *nodes, struct draft *draft,
                       struct nnb_reason *reason) {
    const size_t count = (size_t)nodes->size;
    draft->context = context;
    draft->use_count = count;
    draft->uses = calloc(count + 1, sizeof *draft->uses);
    draft->codes = calloc(count + 1, sizeof *draft->codes);
    draft->code_numbers = calloc(count + 1, sizeof *draft->code_numbers);
    draft->numbers = calloc(context->tensor_count + 1, sizeof *draft->numbers);
    draft->tensors = calloc(context->tensor_count + 1, sizeof *draft->tensors);
    if (draft->uses == NULL || draft->codes == NULL || draft->code_numbers == NULL || draft->numbers == NULL ||
        draft->tensors == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    for (size_t i = 0; i < context->tensor_count; i++) {
        draft->numbers[i] = -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (!nnb_node_check(context, nodes->data[i], reason) ||
            !look_up(context, nodes->data[i], &draft->uses[i], reason)) {
            return false;
        }
        number_tensors(draft, draft->uses[i].node->inputs);
        number_tensors(draft, draft->uses[i].node->outputs);
    }
    number_codes(draft);
    return true;
}

static size_t write_code(struct nnb_flat *file, int32_t code, int version) {
    const struct nnb_field fields[] = {
        {CODE_OLD, 1, (uint32_t)(code < OLD_CODES ? code : OLD_CODES)},
        {CODE_VERSION, 4, (uint32_t)version},
        {CODE_CODE, 4, (uint32_t)code},
    };
    return nnb_flat_table(file, fields, 3);
}

static void write_codes(const struct draft *draft, struct nnb_flat *file, size_t model) {
    const size_t codes = nnb_flat_places(file, draft->code_count + (draft->expanded_count != 0));
    nnb_flat_refer(file, model, MODEL_CODES, codes);
    for (size_t i = 0; i < draft->use_count; i++) {
        if (draft->codes[i] == i) {
            nnb_flat_enter(file, codes, draft->code_numbers[i],
                           write_code(file, draft->uses[i].code, draft->uses[i].version));
        }
    }
    if (draft->expanded_count != 0) {
        nnb_flat_enter(file, codes, draft->code_count, write_code(file, EXPAND_DIMS, 1));
    }
}

/* Writes the file's numbers of tensors of the context. */
static size_t write_numbers(const struct draft *draft, const int *tensors, size_t count, struct nnb_flat *file) {
    int32_t *numbers = calloc(count + 1, sizeof *numbers);
    if (numbers == NULL) {
        file->failed = true;
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        numbers[i] = tensors[i] == TFL_NO_TENSOR ? TFL_NO_TENSOR : draft->numbers[tensors[i]];
    }
    const size_t place = nnb_flat_numbers(file, numbers, count, sizeof *numbers, sizeof *numbers);
    free(numbers);
    return place;
}

static size_t write_operator(const struct draft *draft, size_t index, struct nnb_flat *file) {
    const struct use *use = &draft->uses[index];
    const uint32_t kind = nnb_operator_union(use->operator);
    const struct nnb_field fields[] = {
        {OPERATOR_CODE, 4, draft->code_numbers[index]},
        {OPERATOR_INPUTS, 4, 0},
        {OPERATOR_OUTPUTS, 4, 0},
        {OPERATOR_UNION, 1, kind},
        {OPERATOR_OPTIONS, 4, 0},
    };
    const size_t table = nnb_flat_table(file, fields, kind != 0 ? 5 : 3);
    const struct tfl_ints *inputs = use->node->inputs;
    const struct tfl_ints *outputs = use->node->outputs;
    nnb_flat_refer(file, table, OPERATOR_INPUTS, write_numbers(draft, inputs->data, (size_t)inputs->size, file));
    nnb_flat_refer(file, table, OPERATOR_OUTPUTS, write_numbers(draft, outputs->data, (size_t)outputs->size, file));
    if (kind != 0) {
        nnb_flat_refer(file, table, OPERATOR_OPTIONS,
                       nnb_operator_write(use->operator, use->version, use->node->options, file));
    }
    return table;
}

/* Notes where a tensor is in the file, if it is among these. */
static void note_table(const int *tensors, size_t *tables, size_t count, int tensor, size_t table) {
    for (size_t i = 0; i < count; i++) {
        if (tensors[i] == tensor) {
            tables[i] = table;
        }
    }
}

static enum nnb_role role_of(const struct nnb_network *network, const struct tfl_tensor *tensor, int index) {
    enum nnb_role role = nnb_tensor_is_constant(tensor) ? NNB_KNOWN : NNB_INNER;
    for (size_t i = 0; i < network->input_count; i++) {
        role = network->inputs[i] == index ? NNB_KNOWN : role;
    }
    for (size_t i = 0; i < network->output_count; i++) {
        role = network->outputs[i] == index && !network->are_expanded[i] ? NNB_OUTPUT : role;
    }
    return role;
}

/* The tensor that says where expanded outputs have an extent more. */
static struct tfl_ints no_extents;
static int32_t first_place;
static const struct tfl_tensor place = {
    .type = TFL_INT32,
    .data = &first_place,
    .dimensions = &no_extents,
    .allocation = TFL_READ_ONLY,
    .bytes = sizeof first_place,
};

/* The file's number of an expanded output: behind the tensors of the context and the place. */
static int32_t expanded_number(const struct draft *draft, size_t at) { return (int32_t)(draft->tensor_count + 1 + at); }

/* Writes the expanded outputs, and the place that they share. */
static void write_expanded(const struct draft *draft, struct nnb_network *network, struct nnb_flat *file, size_t tensors,
                           uint32_t buffer) {
    const struct nnb_form known = {NNB_KNOWN, false};
    const struct nnb_form expanded = {NNB_OUTPUT, true};
    const uint32_t number = (uint32_t)draft->tensor_count;
    nnb_flat_enter(file, tensors, number, nnb_tensor_write(&place, number, buffer, known, file));
    for (size_t i = 0, at = 0; i < network->output_count; i++) {
        if (network->are_expanded[i]) {
            const size_t own = (size_t)expanded_number(draft, at++);
            network->output_tables[i] =
                nnb_tensor_write(&draft->context->tensors[network->outputs[i]], (uint32_t)own, 0, expanded, file);
            nnb_flat_enter(file, tensors, own, network->output_tables[i]);
        }
    }
}

static size_t write_tensors(const struct draft *draft, struct nnb_network *network, struct nnb_flat *file) {
    const size_t more = draft->expanded_count != 0 ? draft->expanded_count + 1 : 0;
    const size_t tensors = nnb_flat_places(file, draft->tensor_count + more);
    uint32_t buffer = 0;
    for (size_t i = 0; i < draft->tensor_count; i++) {
        const int index = draft->tensors[i];
        const struct tfl_tensor *tensor = &draft->context->tensors[index];
        const struct nnb_form form = {role_of(network, tensor, index), false};
        const uint32_t own = nnb_tensor_is_constant(tensor) ? ++buffer : 0;
        const size_t table = nnb_tensor_write(tensor, (uint32_t)i, own, form, file);
        nnb_flat_enter(file, tensors, i, table);
        note_table(network->inputs, network->input_tables, network->input_count, index, table);
        note_table(network->outputs, network->output_tables, network->output_count, index, table);
    }
    if (more != 0) {
        write_expanded(draft, network, file, tensors, buffer + 1);
    }
    return tensors;
}

static size_t write_outputs(const struct draft *draft, const struct nnb_network *network, struct nnb_flat *file) {
    int32_t *numbers = calloc(network->output_count + 1, sizeof *numbers);
    if (numbers == NULL) {
        file->failed = true;
        return 0;
    }
    for (size_t i = 0, at = 0; i < network->output_count; i++) {
        numbers[i] = network->are_expanded[i] ? expanded_number(draft, at++) : draft->numbers[network->outputs[i]];
    }
    const size_t written = nnb_flat_numbers(file, numbers, network->output_count, sizeof *numbers, sizeof *numbers);
    free(numbers);
    return written;
}

static size_t write_expansion(const struct draft *draft, int output, size_t at, struct nnb_flat *file) {
    const struct nnb_field fields[] = {
        {OPERATOR_CODE, 4, draft->code_count}, {OPERATOR_INPUTS, 4, 0}, {OPERATOR_OUTPUTS, 4, 0}};
    const int32_t inputs[] = {draft->numbers[output], (int32_t)draft->tensor_count};
    const int32_t outputs[] = {expanded_number(draft, at)};
    const size_t table = nnb_flat_table(file, fields, 3);
    nnb_flat_refer(file, table, OPERATOR_INPUTS, nnb_flat_numbers(file, inputs, 2, sizeof *inputs, sizeof *inputs));
    nnb_flat_refer(file, table, OPERATOR_OUTPUTS, nnb_flat_numbers(file, outputs, 1, sizeof *outputs, sizeof *outputs));
    return table;
}

static size_t write_operators(const struct draft *draft, const struct nnb_network *network, struct nnb_flat *file) {
    const size_t operators = nnb_flat_places(file, draft->use_count + draft->expanded_count);
    for (size_t i = 0; i < draft->use_count; i++) {
        nnb_flat_enter(file, operators, i, write_operator(draft, i, file));
    }
    for (size_t i = 0, at = 0; i < network->output_count; i++) {
        if (network->are_expanded[i]) {
            nnb_flat_enter(file, operators, draft->use_count + at, write_expansion(draft, network->outputs[i], at, file));
            at++;
        }
    }
    return operators;
}

static void write_subgraph(const struct draft *draft, struct nnb_network *network, struct nnb_flat *file, size_t model) {
    const struct nnb_field fields[] = {
        {SUBGRAPH_TENSORS, 4, 0}, {SUBGRAPH_INPUTS, 4, 0}, {SUBGRAPH_OUTPUTS, 4, 0}, {SUBGRAPH_OPERATORS, 4, 0}};
    const size_t subgraphs = nnb_flat_places(file, 1);
    nnb_flat_refer(file, model, MODEL_SUBGRAPHS, subgraphs);
    const size_t subgraph = nnb_flat_table(file, fields, 4);
    nnb_flat_enter(file, subgraphs, 0, subgraph);
    nnb_flat_refer(file, subgraph, SUBGRAPH_INPUTS, write_numbers(draft, network->inputs, network->input_count, file));
    nnb_flat_refer(file, subgraph, SUBGRAPH_OUTPUTS, write_outputs(draft, network, file));
    nnb_flat_refer(file, subgraph, SUBGRAPH_TENSORS, write_tensors(draft, network, file));
    nnb_flat_refer(file, subgraph, SUBGRAPH_OPERATORS, write_operators(draft, network, file));
}

static size_t write_buffer(const struct tfl_tensor *tensor, struct nnb_flat *file) {
    const struct nnb_field fields[] = {{BUFFER_DATA, 4, 0}};
    const size_t table = nnb_flat_table(file, fields, 1);
    nnb_flat_refer(file, table, BUFFER_DATA, nnb_flat_numbers(file, tensor->data, tensor->bytes, 1, BYTES_ALIGNMENT));
    return table;
}

/* Writes the buffers; tensors without a value have buffer 0. */
static void write_buffers(const struct draft *draft, struct nnb_flat *file, size_t model) {
    size_t count = 1 + (size_t)(draft->expanded_count != 0);
    for (size_t i = 0; i < draft->tensor_count; i++) {
        count += nnb_tensor_is_constant(&draft->context->tensors[draft->tensors[i]]);
    }
    const size_t buffers = nnb_flat_places(file, count);
    nnb_flat_refer(file, model, MODEL_BUFFERS, buffers);
    nnb_flat_enter(file, buffers, 0, nnb_flat_table(file, NULL, 0));
    size_t buffer = 1;
    for (size_t i = 0; i < draft->tensor_count; i++) {
        const struct tfl_tensor *tensor = &draft->context->tensors[draft->tensors[i]];
        if (nnb_tensor_is_constant(tensor)) {
            nnb_flat_enter(file, buffers, buffer++, write_buffer(tensor, file));
        }
    }
    if (draft->expanded_count != 0) {
        nnb_flat_enter(file, buffers, buffer, write_buffer(&place, file));
    }
}

/* Copies indexes of tensors that are in the file and, of inputs, no constants. */
static bool take(const struct draft *draft, const struct tfl_ints *tensors, bool are_inputs, int **taken, size_t *count,
                 struct nnb_reason *reason) {
    if (!nnb_ints_check(tensors, (int)draft->tensor_count, are_inputs ? "inputs" : "outputs", reason)) {
        return false;
    }
    *taken = calloc((size_t)tensors->size + 1, sizeof **taken);
    if (*taken == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    for (int i = 0; i < tensors->size; i++) {
        const int index = tensors->data[i];
        if (index < 0 || (size_t)index >= draft->context->tensor_count || draft->numbers[index] < 0) {
            return nnb_refuse(reason, "tensor %d is at the border of nodes that do not have it", index);
        }
        if (!are_inputs || !nnb_tensor_is_constant(&draft->context->tensors[index])) {
            (*taken)[(*count)++] = index;
        }
    }
    return true;
}

static bool write_file(struct draft *draft, const struct tfl_partition *partition, struct nnb_network *network,
                       struct nnb_reason *reason) {
    if (!take(draft, partition->inputs, true, &network->inputs, &network->input_count, reason) ||
        !take(draft, partition->outputs, false, &network->outputs, &network->output_count, reason)) {
        return false;
    }
    network->input_tables = calloc(network->input_count + 1, sizeof *network->input_tables);
    network->output_tables = calloc(network->output_count + 1, sizeof *network->output_tables);
    network->are_expanded = calloc(network->output_count + 1, sizeof *network->are_expanded);
    if (network->input_tables == NULL || network->output_tables == NULL || network->are_expanded == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    for (size_t i = 0; i < network->output_count; i++) {
        network->are_expanded[i] = draft->context->tensors[network->outputs[i]].dimensions->size == 0;
        draft->expanded_count += network->are_expanded[i];
    }
    const struct nnb_field fields[] = {
        {MODEL_VERSION, 4, SCHEMA_VERSION}, {MODEL_CODES, 4, 0}, {MODEL_SUBGRAPHS, 4, 0}, {MODEL_BUFFERS, 4, 0}};
    nnb_flat_begin(&network->file, "TFL3");
    const size_t model = nnb_flat_table(&network->file, fields, 4);
    write_codes(draft, &network->file, model);
    write_subgraph(draft, network, &network->file, model);
    write_buffers(draft, &network->file, model);
    network->file_bytes = network->file.count;
    return !network->file.failed ||
           nnb_refuse(reason, "nnburst: memory is short, or the nodes have more than 2 GiB of constants");
}

bool nnb_network_write(struct tfl_context *context, const struct tfl_partition *partition, struct nnb_network *network,
                       struct nnb_reason *reason) {
    struct draft draft = {0};
    *network = (struct nnb_network){0};
    if (!nnb_ints_check(partition->nodes, MOST_NODES, "nodes", reason)) {
        return false;
    }
    network->node_count = (size_t)partition->nodes->size;
    network->nodes = calloc(network->node_count + 1, sizeof *network->nodes);
    if (network->nodes == NULL) {
        return nnb_refuse(reason, "nnburst: memory is short");
    }
    memcpy(network->nodes, partition->nodes->data, network->node_count * sizeof *network->nodes);
    bool written =
        make_draft(context, partition->nodes, &draft, reason) && write_file(&draft, partition, network, reason);
    free_draft(&draft);
    return written;
}

bool nnb_network_rewrite(struct nnb_network *network, const struct tfl_context *context, const void *file,
                         enum nnb_role output, struct nnb_reason *reason) {
    for (size_t i = 0; i < network->input_count + network->output_count; i++) {
        const int index = i < network->input_count ? network->inputs[i] : network->outputs[i - network->input_count];
        if (!nnb_tensor_check(context, index, reason)) {
            return false;
        }
    }
    nnb_flat_resume(&network->file, file, network->file_bytes);
    for (size_t i = 0; i < network->input_count; i++) {
        const struct nnb_form form = {NNB_KNOWN, false};
        nnb_tensor_write_extents(&context->tensors[network->inputs[i]], network->input_tables[i], form, &network->file);
    }
    for (size_t i = 0; i < network->output_count; i++) {
        const struct nnb_form form = {output, network->are_expanded[i]};
        nnb_tensor_write_extents(&context->tensors[network->outputs[i]], network->output_tables[i], form, &network->file);
    }
    return !network->file.failed || nnb_refuse(reason, "nnburst: memory is short");
}

void nnb_network_free(struct nnb_network *network) {
    nnb_flat_free(&network->file);
    free(network->nodes);
    free(network->inputs);
    free(network->outputs);
    free(network->are_expanded);
    free(network->input_tables);
    free(network->output_tables);
    *network = (struct nnb_network){0};
}

bool nnb_network_has(const struct nnb_network *network, const struct tfl_ints *nodes) {
    return nodes != NULL && nodes->size >= 0 && (size_t)nodes->size == network->node_count &&
           memcmp(nodes->data, network->nodes, network->node_count * sizeof *network->nodes) == 0;
}
