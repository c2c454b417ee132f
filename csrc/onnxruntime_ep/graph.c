#include "onnxruntime_ep/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, ALIGNMENT = 64, INLINE_BYTES = 1024 };
/* Numbers of ONNX's fields and of its kinds of attributes. */
enum { MODEL_VERSION = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPERATORS = 8 };
enum { OPERATORS_DOMAIN = 1, OPERATORS_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OPERATOR = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_STRING = 4,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_FLOATS = 7,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_STRINGS = 9,
    ATTRIBUTE_KIND = 20,
};
enum { KIND_FLOAT = 1, KIND_INT, KIND_STRING, KIND_TENSOR, KIND_GRAPH, KIND_FLOATS, KIND_INTS, KIND_STRINGS };
enum { TENSOR_DIMENSION = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13, TENSOR_PLACE = 14 };
enum { PAIR_KEY = 1, PAIR_VALUE = 2, IS_EXTERNAL = 1 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_DIMENSION = 1, DIMENSION_VALUE = 1, DIMENSION_NAME = 2 };

ort_status nnb_ort_list(ort_object owner, int count_place, int list_place, ort_object **items, size_t *count) {
    *items = NULL;
    *count = 0;
    size_t found = 0;
    ORT_TRY(ORT(count_place, ort_object, size_t *)(owner, &found));
    ort_object *list = calloc(found + 1, sizeof *list);
    if (list == NULL) {
        return nnb_ort_short_of_memory();
    }
    ort_status failed =
        found == 0 ? NULL : ORT(list_place, ort_object, ort_object *, size_t)(owner, list, found);
    if (failed != NULL) {
        free(list);
        return failed;
    }
    *items = list;
    *count = found;
    return NULL;
}

/* -- values ----------------------------------------------------------------------------------------------- */

static ort_status value_name(ort_object value, const char **name) {
    return ORT(ORT_VALUE_NAME, ort_object, const char **)(value, name);
}

/* Gets type and shape of a value; NULL if it is not a tensor. */
static ort_status tensor_of(ort_object value, ort_object *tensor) {
    ort_object type = NULL;
    *tensor = NULL;
    ORT_TRY(ORT(ORT_VALUE_TYPE, ort_object, ort_object *)(value, &type));
    return type == NULL ? NULL : ORT(ORT_CAST_TO_TENSOR_INFO, ort_object, ort_object *)(type, tensor);
}

ort_status nnb_value_element(ort_object value, int *element) {
    ort_object tensor = NULL;
    *element = 0;
    ORT_TRY(tensor_of(value, &tensor));
    return tensor == NULL ? NULL : ORT(ORT_GET_ELEMENT_TYPE, ort_object, int *)(tensor, element);
}

ort_status nnb_ort_shape(ort_object tensor, int64_t **dimensions, size_t *rank) {
    ORT_TRY(ORT(ORT_GET_RANK, ort_object, size_t *)(tensor, rank));
    *dimensions = calloc(*rank + 1, sizeof **dimensions);
    if (*dimensions == NULL) {
        return nnb_ort_short_of_memory();
    }
    return ORT(ORT_GET_DIMENSIONS, ort_object, int64_t *, size_t)(tensor, *dimensions, *rank);
}

/* Whether the shape of an input or output is known. An engine that does not distinguish an unknown shape from a
 * scalar's (1.23) has scalars among the inputs of a Loop, whose shape must be written; of outputs it may be either. */
static bool has_shape(ort_object tensor, bool is_output, size_t rank) {
    if (nnb_ort.has_shapes) {
        return ((bool (*)(ort_object))nnb_ort.api[ORT_HAS_SHAPE])(tensor);
    }
    return !is_output || rank != 0;
}

/* -- constants -------------------------------------------------------------------------------------------- */

/* Reserves a place in the file of weights for a constant's bytes; false without enough memory. */
static bool lay_out(struct nnb_written *written, const void *data, size_t bytes, uint64_t *offset) {
    if (written->part_count == written->part_room) {
        size_t room = 2 * written->part_room + 16;
        struct nnb_part *parts = realloc(written->parts, room * sizeof *parts);
        if (parts == NULL) {
            return false;
        }
        written->parts = parts;
        written->part_room = room;
    }
    *offset = (written->weights_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    written->parts[written->part_count++] = (struct nnb_part){data, *offset, bytes};
    written->weights_bytes = *offset + bytes;
    return true;
}

static void write_pair(struct nnb_proto *file, const char *key, const char *value) {
    size_t begun = nnb_proto_begin(file, TENSOR_EXTERNAL);
    nnb_proto_text(file, PAIR_KEY, key);
    nnb_proto_text(file, PAIR_VALUE, value);
    nnb_proto_end(file, begun);
}

/* Writes a tensor's value. `may_move`: whether its bytes may be put into the file of weights. */
static ort_status write_value(struct nnb_written *written, uint32_t field, const char *name, ort_object value,
                              ort_object info, bool may_move) {
    struct nnb_proto *file = &written->file;
    int element = 0;
    int64_t *dimensions = NULL;
    size_t rank = 0;
    size_t bytes = 0;
    void *data = NULL;
    ORT_TRY(ORT(ORT_GET_ELEMENT_TYPE, ort_object, int *)(info, &element));
    if (element == ORT_STRING) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "constant %s has strings", name);
    }
    ORT_TRY(ORT(ORT_TENSOR_BYTES, ort_object, size_t *)(value, &bytes));
    if (bytes != 0) {
        ORT_TRY(ORT(ORT_GET_TENSOR_DATA, ort_object, void **)(value, &data));
    }
    ort_status failed = nnb_ort_shape(info, &dimensions, &rank);
    if (failed == NULL) {
        size_t begun = nnb_proto_begin(file, field);
        for (size_t i = 0; i < rank; i++) {
            nnb_proto_uint(file, TENSOR_DIMENSION, (uint64_t)dimensions[i]);
        }
        nnb_proto_uint(file, TENSOR_TYPE, (uint64_t)element);
        nnb_proto_text(file, TENSOR_NAME, name);
        uint64_t offset;
        if (!may_move || bytes < INLINE_BYTES) {
            nnb_proto_bytes(file, TENSOR_RAW, data, bytes);
        } else if (lay_out(written, data, bytes, &offset)) {
            char text[32];
            write_pair(file, "location", NNB_WEIGHTS);
            (void)snprintf(text, sizeof text, "%" PRIu64, offset);
            write_pair(file, "offset", text);
            (void)snprintf(text, sizeof text, "%zu", bytes);
            write_pair(file, "length", text);
            nnb_proto_uint(file, TENSOR_PLACE, IS_EXTERNAL);
        } else {
            file->failed = true;
        }
        nnb_proto_end(file, begun);
    }
    free(dimensions);
    return failed;
}

static ort_status write_tensor(struct nnb_written *written, uint32_t field, const char *name, ort_object value,
                               bool may_move) {
    ort_object info = NULL;
    ORT_TRY(ORT(ORT_GET_TYPE_AND_SHAPE, ort_object, ort_object *)(value, &info));
    ort_status failed = write_value(written, field, name, value, info, may_move);
    ORT_RELEASE(ORT_RELEASE_TENSOR_INFO, info);
    return failed;
}

/* -- borders ---------------------------------------------------------------------------------------------- */

static void free_border(struct nnb_border *border) {
    free(border->name);
    free(border->dimensions);
    free(border->symbols);
}

static ort_status describe(ort_object value, bool is_output, struct nnb_border *border) {
    const char *name = NULL;
    ort_object tensor = NULL;
    ORT_TRY(value_name(value, &name));
    border->name = strdup(name);
    if (border->name == NULL) {
        return nnb_ort_short_of_memory();
    }
    ORT_TRY(tensor_of(value, &tensor));
    if (tensor == NULL) {
        return nnb_ort_status(ORT_INVALID_ARGUMENT, "%s is no tensor", name);
    }
    ORT_TRY(ORT(ORT_GET_ELEMENT_TYPE, ort_object, int *)(tensor, &border->element));
    ORT_TRY(nnb_ort_shape(tensor, &border->dimensions, &border->rank));
    border->has_shape = has_shape(tensor, is_output, border->rank);
    border->symbols = calloc(border->rank + 1, sizeof *border->symbols);
    if (border->symbols == NULL) {
        return nnb_ort_short_of_memory();
    }
    return ORT(ORT_GET_SYMBOLIC_DIMENSIONS, ort_object, const char **, size_t)(tensor, border->symbols, border->rank);
}

static void write_border(struct nnb_proto *file, uint32_t field, const struct nnb_border *border) {
    size_t begun = nnb_proto_begin(file, field);
    nnb_proto_text(file, VALUE_NAME, border->name);
    size_t type = nnb_proto_begin(file, VALUE_TYPE);
    size_t tensor = nnb_proto_begin(file, TYPE_TENSOR);
    nnb_proto_uint(file, TENSOR_ELEMENT, (uint64_t)border->element);
    if (border->has_shape) {
        size_t shape = nnb_proto_begin(file, TENSOR_SHAPE);
        for (size_t i = 0; i < border->rank; i++) {
            size_t dimension = nnb_proto_begin(file, SHAPE_DIMENSION);
            if (border->dimensions[i] >= 0) {
                nnb_proto_uint(file, DIMENSION_VALUE, (uint64_t)border->dimensions[i]);
            } else if (border->symbols[i] != NULL && border->symbols[i][0] != '\0') {
                nnb_proto_text(file, DIMENSION_NAME, border->symbols[i]); /* which extents are equal */
            }
            nnb_proto_end(file, dimension);
        }
        nnb_proto_end(file, shape);
    }
    nnb_proto_end(file, tensor);
    nnb_proto_end(file, type);
    nnb_proto_end(file, begun);
}

/* Writes the formal inputs or outputs of a subgraph. */
static ort_status write_formal(struct nnb_proto *file, uint32_t field, const ort_object *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct nnb_border border = {0};
        ort_status failed = describe(values[i], field == GRAPH_OUTPUT, &border);
        if (failed == NULL) {
            write_border(file, field, &border);
        }
        free_border(&border);
        ORT_TRY(failed);
    }
    return NULL;
}

/* -- nodes ------------------------------------------------------------------------------------------------ */

struct names {
    const char **items;
    size_t count;
    size_t room;
};

/* Adds a name to the set; returns whether it was new. */
static bool note(struct names *names, const char *name, bool *failed) {
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0) {
            return false;
        }
    }
    if (names->count == names->room) {
        size_t room = 2 * names->room + 64;
        const char **items = realloc(names->items, room * sizeof *items);
        if (items == NULL) {
            *failed = true;
            return false;
        }
        names->items = items;
        names->room = room;
    }
    names->items[names->count++] = name;
    return true;
}

/* Writes the constants among some values that were not written yet. The engine finds bytes in other files
 * only for the main graph: see `may_move`. */
static ort_status write_constants(struct nnb_written *written, const ort_object *values, size_t count,
                                  struct names *done, bool may_move) {
    for (size_t i = 0; i < count; i++) {
        bool is_constant = false;
        ort_object value = NULL;
        const char *name = NULL;
        if (values[i] == NULL) {
            continue; /* an optional input that is left out */
        }
        ORT_TRY(ORT(ORT_VALUE_IS_CONSTANT, ort_object, bool *)(values[i], &is_constant));
        if (!is_constant) {
            continue;
        }
        ORT_TRY(value_name(values[i], &name));
        if (!note(done, name, &written->file.failed)) {
            continue;
        }
        ORT_TRY(ORT(ORT_VALUE_INITIALIZER, ort_object, ort_object *)(values[i], &value));
        if (value == NULL) {
            return nnb_ort_status(ORT_FAIL, "constant %s has no value", name);
        }
        ORT_TRY(write_tensor(written, GRAPH_INITIALIZER, name, value, may_move));
    }
    return NULL;
}

static ort_status write_nodes(struct nnb_written *written, ort_object graph, struct names *constants, int depth);

static ort_status write_subgraph(struct nnb_written *written, ort_object graph, int depth) {
    struct nnb_proto *file = &written->file;
    struct names constants = {0};
    ort_object *values = NULL;
    size_t count = 0;
    ort_status failed =
        nnb_ort_list(graph, ORT_GRAPH_COUNT_INITIALIZERS, ORT_GRAPH_INITIALIZERS, &values, &count);
    if (failed == NULL) {
        nnb_proto_text(file, GRAPH_NAME, "subgraph");
        failed = write_constants(written, values, count, &constants, false);
    }
    free(values);
    if (failed == NULL) {
        failed = nnb_ort_list(graph, ORT_GRAPH_COUNT_INPUTS, ORT_GRAPH_INPUTS, &values, &count);
        if (failed == NULL) {
            failed = write_formal(file, GRAPH_INPUT, values, count);
            free(values);
        }
    }
    if (failed == NULL) {
        failed = nnb_ort_list(graph, ORT_GRAPH_COUNT_OUTPUTS, ORT_GRAPH_OUTPUTS, &values, &count);
        if (failed == NULL) {
            failed = write_formal(file, GRAPH_OUTPUT, values, count);
            free(values);
        }
    }
    if (failed == NULL) {
        /* Constants of the graphs around it are those graphs'. */
        failed = write_nodes(written, graph, NULL, depth + 1);
    }
    free(constants.items);
    return failed;
}

/* Reads the bytes of an attribute, which the caller frees. */
static ort_status read_attribute(ort_object attribute, int type, void **data, size_t *bytes) {
    *data = NULL;
    *bytes = 0;
    ort_status failed = ORT(ORT_READ_ATTRIBUTE, ort_object, int, void *, size_t, size_t *)(attribute, type, NULL, 0, bytes);
    if (failed != NULL) { /* there was no room, as is to be expected */
        ORT_RELEASE(ORT_RELEASE_STATUS, failed);
    }
    *data = calloc(1, *bytes + 1);
    if (*data == NULL) {
        return nnb_ort_short_of_memory();
    }
    return *bytes == 0 ? NULL
                       : ORT(ORT_READ_ATTRIBUTE, ort_object, int, void *, size_t, size_t *)(attribute, type, *data,
                                                                                           *bytes, bytes);
}

static void write_numbers(struct nnb_proto *file, int type, const uint8_t *data, size_t bytes) {
    size_t size = type == ORT_ATTRIBUTE_INT || type == ORT_ATTRIBUTE_INTS ? sizeof(int64_t) : sizeof(float);
    for (size_t at = 0; at + size <= bytes; at += size) {
        int64_t integer;
        float real;
        if (size == sizeof integer) {
            memcpy(&integer, data + at, sizeof integer);
            nnb_proto_uint(file, type == ORT_ATTRIBUTE_INT ? ATTRIBUTE_INT : ATTRIBUTE_INTS, (uint64_t)integer);
        } else {
            memcpy(&real, data + at, sizeof real);
            nnb_proto_float(file, type == ORT_ATTRIBUTE_FLOAT ? ATTRIBUTE_FLOAT : ATTRIBUTE_FLOATS, real);
        }
    }
}

/* Each string has a 0 behind it. */
static void write_strings(struct nnb_proto *file, int type, const char *data, size_t bytes) {
    if (type == ORT_ATTRIBUTE_STRING) {
        nnb_proto_bytes(file, ATTRIBUTE_STRING, data, bytes != 0 && data[bytes - 1] == '\0' ? bytes - 1 : bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += strlen(data + at) + 1) {
        nnb_proto_text(file, ATTRIBUTE_STRINGS, data + at);
    }
}

/* An attribute's kind by the engine's number; 0 for kinds without a number, such as graphs in 1.23. */
static int attribute_type(ort_object attribute) {
    int type = 0;
    ort_status failed = ORT(ORT_ATTRIBUTE_TYPE, ort_object, int *)(attribute, &type);
    if (failed != NULL) {
        ORT_RELEASE(ORT_RELEASE_STATUS, failed);
        return 0;
    }
    return type < 0 || type > ORT_ATTRIBUTE_IS_TENSOR ? 0 : type;
}

/* A node's graphs and the names of their attributes; the caller frees both lists. */
static ort_status subgraphs_of(ort_object node, ort_object **graphs, const char ***names, size_t *count) {
    *graphs = NULL;
    *names = NULL;
    ORT_TRY(ORT(ORT_NODE_COUNT_SUBGRAPHS, ort_object, size_t *)(node, count));
    *graphs = calloc(*count + 1, sizeof **graphs);
    *names = calloc(*count + 1, sizeof **names);
    if (*graphs == NULL || *names == NULL) {
        return nnb_ort_short_of_memory();
    }
    return *count == 0 ? NULL
                       : ORT(ORT_NODE_SUBGRAPHS, ort_object, ort_object *, size_t, const char **)(node, *graphs, *count,
                                                                                                 *names);
}

static bool is_among(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static ort_status write_attribute(struct nnb_written *written, ort_object attribute) {
    static const uint8_t kinds[] = {0, KIND_INT, KIND_INTS, KIND_FLOAT, KIND_FLOATS, KIND_STRING, KIND_STRINGS, 0, KIND_TENSOR};
    struct nnb_proto *file = &written->file;
    const char *name = NULL;
    int type = attribute_type(attribute);
    if (type == 0 || type == ORT_ATTRIBUTE_GRAPH) {
        return NULL; /* a graph, which the engine lists apart: nnb_node_is_writable permits nothing else */
    }
    ORT_TRY(ORT(ORT_ATTRIBUTE_NAME, ort_object, const char **)(attribute, &name));
    size_t begun = nnb_proto_begin(file, NODE_ATTRIBUTE);
    nnb_proto_text(file, ATTRIBUTE_NAME, name);
    nnb_proto_uint(file, ATTRIBUTE_KIND, kinds[type]);
    ort_status failed;
    if (type == ORT_ATTRIBUTE_IS_TENSOR) {
        ort_object value = NULL;
        failed = ORT(ORT_ATTRIBUTE_TENSOR, ort_object, ort_object *)(attribute, &value);
        if (failed == NULL) {
            failed = write_tensor(written, ATTRIBUTE_TENSOR, name, value, false);
            ORT_RELEASE(ORT_RELEASE_VALUE, value);
        }
    } else {
        void *data = NULL;
        size_t bytes = 0;
        failed = read_attribute(attribute, type, &data, &bytes);
        if (failed == NULL && (type == ORT_ATTRIBUTE_STRING || type == ORT_ATTRIBUTE_STRINGS)) {
            write_strings(file, type, data, bytes);
        } else if (failed == NULL) {
            write_numbers(file, type, data, bytes);
        }
        free(data);
    }
    nnb_proto_end(file, begun);
    return failed;
}

static ort_status write_attributes(struct nnb_written *written, ort_object node, int depth) {
    struct nnb_proto *file = &written->file;
    ort_object *attributes = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(node, ORT_NODE_COUNT_ATTRIBUTES, ORT_NODE_ATTRIBUTES, &attributes, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        failed = write_attribute(written, attributes[i]);
    }
    free(attributes);
    if (failed != NULL) {
        return failed;
    }
    ort_object *graphs = NULL;
    const char **names = NULL;
    failed = subgraphs_of(node, &graphs, &names, &count);
    if (failed == NULL && count != 0 && depth >= MAX_DEPTH) {
        failed = nnb_ort_status(ORT_INVALID_ARGUMENT, "graphs lie deeper than %d in each other", MAX_DEPTH);
    }
    for (size_t i = 0; failed == NULL && i < count; i++) {
        size_t begun = nnb_proto_begin(file, NODE_ATTRIBUTE);
        nnb_proto_text(file, ATTRIBUTE_NAME, names[i]);
        nnb_proto_uint(file, ATTRIBUTE_KIND, KIND_GRAPH);
        size_t graph = nnb_proto_begin(file, ATTRIBUTE_GRAPH);
        failed = write_subgraph(written, graphs[i], depth);
        nnb_proto_end(file, graph);
        nnb_proto_end(file, begun);
    }
    free(graphs);
    free(names);
    return failed;
}

static ort_status write_names(struct nnb_proto *file, uint32_t field, const ort_object *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *name = "";
        if (values[i] != NULL) {
            ORT_TRY(value_name(values[i], &name));
        }
        nnb_proto_text(file, field, name);
    }
    return NULL;
}

/* Writes a node, and the constants that it reads, unless they were written already or belong to another
 * graph. */
static ort_status write_node(struct nnb_written *written, ort_object node, struct names *constants, int depth) {
    struct nnb_proto *file = &written->file;
    static const int places[][3] = {
        {ORT_NODE_COUNT_INPUTS, ORT_NODE_INPUTS, NODE_INPUT},
        {ORT_NODE_COUNT_IMPLICIT_INPUTS, ORT_NODE_IMPLICIT_INPUTS, 0},
        {ORT_NODE_COUNT_OUTPUTS, ORT_NODE_OUTPUTS, NODE_OUTPUT},
    };
    static const int texts[][2] = {{ORT_NODE_NAME, NODE_NAME}, {ORT_NODE_OPERATOR, NODE_OPERATOR}, {ORT_NODE_DOMAIN, NODE_DOMAIN}};
    for (size_t i = 0; constants != NULL && i < 2; i++) {
        ort_object *values = NULL;
        size_t count = 0;
        ORT_TRY(nnb_ort_list(node, places[i][0], places[i][1], &values, &count));
        ort_status failed = write_constants(written, values, count, constants, true);
        free(values);
        ORT_TRY(failed);
    }
    size_t begun = nnb_proto_begin(file, GRAPH_NODE);
    for (size_t i = 0; i < 3; i++) {
        ort_object *values = NULL;
        size_t count = 0;
        if (places[i][2] == 0) {
            continue;
        }
        ORT_TRY(nnb_ort_list(node, places[i][0], places[i][1], &values, &count));
        ort_status failed = write_names(file, (uint32_t)places[i][2], values, count);
        free(values);
        ORT_TRY(failed);
    }
    for (size_t i = 0; i < 3; i++) {
        const char *text = NULL;
        ORT_TRY(ORT(texts[i][0], ort_object, const char **)(node, &text));
        if (text != NULL && text[0] != '\0') {
            nnb_proto_text(file, (uint32_t)texts[i][1], text);
        }
    }
    ORT_TRY(write_attributes(written, node, depth));
    nnb_proto_end(file, begun);
    return NULL;
}

static ort_status write_nodes(struct nnb_written *written, ort_object graph, struct names *constants, int depth) {
    ort_object *nodes = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(graph, ORT_GRAPH_COUNT_NODES, ORT_GRAPH_NODES, &nodes, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        failed = write_node(written, nodes[i], constants, depth);
    }
    free(nodes);
    return failed;
}

/* -- whole files ------------------------------------------------------------------------------------------ */

/* Describes and writes the inputs that are no constants, or the outputs. */
static ort_status write_borders(struct nnb_written *written, ort_object graph, bool outputs) {
    ort_object *values = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(graph, outputs ? ORT_GRAPH_COUNT_OUTPUTS : ORT_GRAPH_COUNT_INPUTS,
                         outputs ? ORT_GRAPH_OUTPUTS : ORT_GRAPH_INPUTS, &values, &count));
    struct nnb_border *borders = calloc(count + 1, sizeof *borders);
    size_t *found = outputs ? &written->output_count : &written->input_count;
    *(outputs ? &written->outputs : &written->inputs) = borders;
    ort_status failed = borders == NULL ? nnb_ort_short_of_memory() : NULL;
    for (size_t i = 0; failed == NULL && i < count; i++) {
        bool is_constant = false;
        if (!outputs) {
            failed = ORT(ORT_VALUE_IS_CONSTANT, ort_object, bool *)(values[i], &is_constant);
        }
        if (failed == NULL && !is_constant) {
            failed = describe(values[i], outputs, &borders[(*found)++]);
        }
        if (failed == NULL && !is_constant) {
            write_border(&written->file, outputs ? GRAPH_OUTPUT : GRAPH_INPUT, &borders[*found - 1]);
            free(borders[*found - 1].symbols);
            borders[*found - 1].symbols = NULL;
        }
    }
    free(values);
    return failed;
}

static void write_shape_of(struct nnb_proto *file, const char *value, const char *shape) {
    size_t begun = nnb_proto_begin(file, GRAPH_NODE);
    nnb_proto_text(file, NODE_INPUT, value);
    nnb_proto_text(file, NODE_OUTPUT, shape);
    nnb_proto_text(file, NODE_OPERATOR, "Shape");
    nnb_proto_end(file, begun);
}

/* Writes the ranks of outputs without a shape, which are the shapes of their shapes. */
static void write_ranks(struct nnb_written *written) {
    struct nnb_proto *file = &written->file;
    for (size_t i = 0; i < written->output_count; i++) {
        struct nnb_border *output = &written->outputs[i];
        if (output->has_shape) {
            continue;
        }
        char shape[64];
        char rank[64];
        int64_t one = 1;
        (void)snprintf(shape, sizeof shape, "nnburst/shape of output %zu", i);
        (void)snprintf(rank, sizeof rank, "nnburst/rank of output %zu", i);
        write_shape_of(file, output->name, shape);
        write_shape_of(file, shape, rank);
        const struct nnb_border border = {.name = rank, .dimensions = &one, .rank = 1, .element = ORT_INT64, .has_shape = true};
        write_border(file, GRAPH_OUTPUT, &border);
        output->rank_output = written->output_count + written->rank_count++;
    }
}

static ort_status write_operators(struct nnb_proto *file, ort_object graph) {
    size_t count = 0;
    ORT_TRY(ORT(ORT_GRAPH_COUNT_OPERATOR_SETS, ort_object, size_t *)(graph, &count));
    const char **domains = calloc(count + 1, sizeof *domains);
    int64_t *versions = calloc(count + 1, sizeof *versions);
    ort_status failed =
        domains == NULL || versions == NULL
            ? nnb_ort_short_of_memory()
            : ORT(ORT_GRAPH_OPERATOR_SETS, ort_object, const char **, int64_t *, size_t)(graph, domains, versions, count);
    for (size_t i = 0; failed == NULL && i < count; i++) {
        size_t begun = nnb_proto_begin(file, MODEL_OPERATORS);
        nnb_proto_text(file, OPERATORS_DOMAIN, domains[i]);
        nnb_proto_uint(file, OPERATORS_VERSION, (uint64_t)versions[i]);
        nnb_proto_end(file, begun);
    }
    free(domains);
    free(versions);
    return failed;
}

static ort_status write_graph(struct nnb_written *written, ort_object graph, struct names *constants) {
    ort_object *values = NULL;
    size_t count = 0;
    nnb_proto_text(&written->file, GRAPH_NAME, "graph");
    ORT_TRY(nnb_ort_list(graph, ORT_GRAPH_COUNT_INITIALIZERS, ORT_GRAPH_INITIALIZERS, &values, &count));
    ort_status failed = write_constants(written, values, count, constants, true);
    free(values);
    ORT_TRY(failed);
    ORT_TRY(write_borders(written, graph, false));
    ORT_TRY(write_borders(written, graph, true));
    ORT_TRY(write_nodes(written, graph, constants, 0));
    write_ranks(written);
    return NULL;
}

ort_status nnb_graph_write(ort_object graph, struct nnb_written *written) {
    *written = (struct nnb_written){0};
    struct nnb_proto *file = &written->file;
    struct names constants = {0};
    int64_t version = 0;
    ORT_TRY(ORT(ORT_GRAPH_IR_VERSION, ort_object, int64_t *)(graph, &version));
    nnb_proto_uint(file, MODEL_VERSION, (uint64_t)version);
    nnb_proto_text(file, MODEL_PRODUCER, "nnburst");
    size_t begun = nnb_proto_begin(file, MODEL_GRAPH);
    ort_status failed = write_graph(written, graph, &constants);
    free(constants.items);
    ORT_TRY(failed);
    nnb_proto_end(file, begun);
    ORT_TRY(write_operators(file, graph));
    return file->failed ? nnb_ort_short_of_memory() : NULL;
}

static void free_borders(struct nnb_border *borders, size_t count) {
    for (size_t i = 0; borders != NULL && i < count; i++) {
        free_border(&borders[i]);
    }
    free(borders);
}

void nnb_written_free(struct nnb_written *written) {
    nnb_proto_free(&written->file);
    free(written->parts);
    free_borders(written->inputs, written->input_count);
    free_borders(written->outputs, written->output_count);
    *written = (struct nnb_written){0};
}

bool nnb_written_same(const struct nnb_written *one, const struct nnb_written *other) {
    if (one->file.count != other->file.count || one->part_count != other->part_count ||
        memcmp(one->file.data, other->file.data, one->file.count) != 0) {
        return false;
    }
    for (size_t i = 0; i < one->part_count; i++) {
        const struct nnb_part *a = &one->parts[i];
        const struct nnb_part *b = &other->parts[i];
        if (a->data != b->data || a->offset != b->offset || a->bytes != b->bytes) {
            return false;
        }
    }
    return true;
}

void nnb_written_copy_weights(const struct nnb_written *written, void *weights) {
    for (size_t i = 0; i < written->part_count; i++) {
        memcpy((uint8_t *)weights + written->parts[i].offset, written->parts[i].data, written->parts[i].bytes);
    }
}

/* -- what can be written ---------------------------------------------------------------------------------- */

/* Whether inputs and outputs of a driver's graph may have an element type: ONNX's real, integer and bool
 * types of whole bytes. */
static bool may_cross(int element) {
    return (element >= 1 && element <= 13 && element != ORT_STRING) || element == 16;
}

static ort_status are_writable(ort_object node, int count_place, int list_place, bool *writable) {
    ort_object *values = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(node, count_place, list_place, &values, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && *writable && i < count; i++) {
        int element = 0; /* of one that is no tensor, which never may */
        bool is_constant = false;
        if (values[i] == NULL) {
            continue;
        }
        failed = nnb_value_element(values[i], &element);
        if (failed == NULL) {
            failed = ORT(ORT_VALUE_IS_CONSTANT, ort_object, bool *)(values[i], &is_constant);
        }
        *writable = may_cross(element) || (is_constant && element > ORT_STRING);
    }
    free(values);
    return failed;
}

static ort_status is_writable(ort_object node, bool *writable, int depth) {
    static const char *const domains[] = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"};
    const char *domain = NULL;
    const char *operator= NULL;
    *writable = false;
    ORT_TRY(ORT(ORT_NODE_DOMAIN, ort_object, const char **)(node, &domain));
    ORT_TRY(ORT(ORT_NODE_OPERATOR, ort_object, const char **)(node, &operator));
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        *writable |= strcmp(domain, domains[i]) == 0;
    }
    *writable &= strcmp(operator, "EPContext") != 0 && depth < MAX_DEPTH;
    ORT_TRY(are_writable(node, ORT_NODE_COUNT_INPUTS, ORT_NODE_INPUTS, writable));
    ORT_TRY(are_writable(node, ORT_NODE_COUNT_IMPLICIT_INPUTS, ORT_NODE_IMPLICIT_INPUTS, writable));
    ORT_TRY(are_writable(node, ORT_NODE_COUNT_OUTPUTS, ORT_NODE_OUTPUTS, writable));
    return NULL;
}

/* Whether all attributes can be written; graphs among them are those of `names`. */
static ort_status check_attributes(ort_object node, const char *const *names, size_t graph_count, bool *writable) {
    ort_object *attributes = NULL;
    size_t count = 0;
    ORT_TRY(nnb_ort_list(node, ORT_NODE_COUNT_ATTRIBUTES, ORT_NODE_ATTRIBUTES, &attributes, &count));
    ort_status failed = NULL;
    for (size_t i = 0; failed == NULL && *writable && i < count; i++) {
        const char *name = NULL;
        failed = ORT(ORT_ATTRIBUTE_NAME, ort_object, const char **)(attributes[i], &name);
        *writable = failed == NULL && (attribute_type(attributes[i]) != 0 || is_among(name, names, graph_count));
    }
    free(attributes);
    return failed;
}

static ort_status check_node(ort_object node, bool *writable, int depth);

static ort_status check_subgraphs(const ort_object *graphs, size_t count, bool *writable, int depth) {
    for (size_t i = 0; *writable && i < count; i++) {
        ort_object *nodes = NULL;
        size_t node_count = 0;
        ORT_TRY(nnb_ort_list(graphs[i], ORT_GRAPH_COUNT_NODES, ORT_GRAPH_NODES, &nodes, &node_count));
        ort_status failed = NULL;
        for (size_t k = 0; failed == NULL && *writable && k < node_count; k++) {
            failed = check_node(nodes[k], writable, depth + 1);
        }
        free(nodes);
        ORT_TRY(failed);
    }
    return NULL;
}

static ort_status check_node(ort_object node, bool *writable, int depth) {
    size_t count = 0;
    ORT_TRY(is_writable(node, writable, depth));
    if (!*writable) {
        return NULL;
    }
    ort_object *graphs = NULL;
    const char **names = NULL;
    ort_status failed = subgraphs_of(node, &graphs, &names, &count);
    if (count != 0 && !nnb_ort.has_shapes) {
        *writable = false; /* 1.23 leaves out what subgraphs read of the graph around them when it compiles */
    }
    if (failed == NULL) {
        failed = check_attributes(node, names, count, writable);
    }
    if (failed == NULL) {
        failed = check_subgraphs(graphs, count, writable, depth);
    }
    free(graphs);
    free(names);
    return failed;
}

ort_status nnb_node_is_writable(ort_object node, bool *writable) { return check_node(node, writable, 0); }
