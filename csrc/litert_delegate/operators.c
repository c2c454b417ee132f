#include "litert_delegate/operators.h"

#include <string.h>

#include "litert_delegate/tensors.h"

/* -- options as the engine has them ----------------------------------------------------------------------- */

enum { MOST_LISTED = 8 };

struct activation {
    int activation;
};

struct addition {
    int activation;
    bool is_scaled_by_shifts;
};

struct convolution {
    int padding;
    int stride_width, stride_height;
    int activation;
    int dilation_width, dilation_height;
};

struct depthwise {
    int padding;
    int stride_width, stride_height;
    int multiplier;
    int activation;
    int dilation_width, dilation_height;
};

struct transposed {
    int padding;
    int stride_width, stride_height;
    int activation;
};

struct pool {
    int padding;
    int stride_width, stride_height;
    int filter_width, filter_height;
    int activation;
};

struct connected {
    int activation;
    int format;
    bool keeps_rank;
    bool is_asymmetric;
};

struct response {
    int radius;
    float bias, alpha, beta;
};

struct real {
    float value;
};

struct whole {
    int value;
};

struct wholes {
    int first, second;
};

struct truth {
    bool value;
};

struct truths {
    bool first, second, third;
};

struct list {
    int32_t items[MOST_LISTED];
    int count;
};

struct slice {
    int begin, end, ellipsis, new_axis, shrink;
    bool is_offset;
};

/* -- how they lie in the format --------------------------------------------------------------------------- */

enum kind { WHOLE = 1, REAL, TRUTH, ACTIVATION, PADDING, MIRROR, FORMAT, TYPE, LIST };

enum { MOST_OPTIONS = 8, MOST_ACTIVATION = 5, SAME = 1, VALID = 2, REFLECT = 1, SYMMETRIC = 2, SHUFFLED = 1 };

struct option {
    uint8_t number; /* of the field in the table */
    uint8_t kind;
    uint8_t place; /* in the struct */
    uint8_t since; /* version of the operator with which it came; 0: it was always there */
};

struct nnb_operator {
    uint8_t code;
    uint8_t table; /* in the union; 0 for an operator without options */
    bool wants_bias;
    const char *name;
    struct option options[MOST_OPTIONS];
};

#define AT(number, kind, type, member) {number, kind, offsetof(struct type, member), 0}
#define SINCE(version, number, kind, type, member) {number, kind, offsetof(struct type, member), version}
#define POOL                                                                                                           \
    {AT(0, PADDING, pool, padding),        AT(1, WHOLE, pool, stride_width),  AT(2, WHOLE, pool, stride_height),       \
     AT(3, WHOLE, pool, filter_width),     AT(4, WHOLE, pool, filter_height), AT(5, ACTIVATION, pool, activation)}
#define REDUCER {AT(0, TRUTH, truth, value)}
#define FUSED {AT(0, ACTIVATION, activation, activation)}
#define ADDITION {AT(0, ACTIVATION, addition, activation), AT(1, TRUTH, addition, is_scaled_by_shifts)}
#define ONE_WHOLE {AT(0, WHOLE, whole, value)}
#define TWO_WHOLES {AT(0, WHOLE, wholes, first), AT(1, WHOLE, wholes, second)}

/* By number. Those whose options are missing have none, or an empty table that the engine does not read. */
static const struct nnb_operator operators[] = {
    {0, 11, false, "ADD", ADDITION},
    {1, 5, false, "AVERAGE_POOL_2D", POOL},
    {2, 10, false, "CONCATENATION", {AT(0, WHOLE, wholes, first), AT(1, ACTIVATION, wholes, second)}},
    {3, 1, true, "CONV_2D",
     {AT(0, PADDING, convolution, padding), AT(1, WHOLE, convolution, stride_width),
      AT(2, WHOLE, convolution, stride_height), AT(3, ACTIVATION, convolution, activation),
      AT(4, WHOLE, convolution, dilation_width), AT(5, WHOLE, convolution, dilation_height)}},
    {4, 2, false, "DEPTHWISE_CONV_2D",
     {AT(0, PADDING, depthwise, padding), AT(1, WHOLE, depthwise, stride_width),
      AT(2, WHOLE, depthwise, stride_height), AT(3, WHOLE, depthwise, multiplier),
      AT(4, ACTIVATION, depthwise, activation), AT(5, WHOLE, depthwise, dilation_width),
      AT(6, WHOLE, depthwise, dilation_height)}},
    {5, 94, false, "DEPTH_TO_SPACE", ONE_WHOLE},
    {6, 0, false, "DEQUANTIZE", {{0}}},
    {8, 0, false, "FLOOR", {{0}}},
    {9, 8, true, "FULLY_CONNECTED",
     {AT(0, ACTIVATION, connected, activation), AT(1, FORMAT, connected, format),
      AT(2, TRUTH, connected, keeps_rank), AT(3, TRUTH, connected, is_asymmetric)}},
    {11, 12, false, "L2_NORMALIZATION", FUSED},
    {12, 5, false, "L2_POOL_2D", POOL},
    {13, 13, false, "LOCAL_RESPONSE_NORMALIZATION",
     {AT(0, WHOLE, response, radius), AT(1, REAL, response, bias), AT(2, REAL, response, alpha),
      AT(3, REAL, response, beta)}},
    {14, 0, false, "LOGISTIC", {{0}}},
    {17, 5, false, "MAX_POOL_2D", POOL},
    {18, 21, false, "MUL", FUSED},
    {19, 0, false, "RELU", {{0}}},
    {20, 0, false, "RELU_N1_TO_1", {{0}}},
    {21, 0, false, "RELU6", {{0}}},
    {22, 17, false, "RESHAPE", {AT(0, LIST, list, items)}},
    {23, 15, false, "RESIZE_BILINEAR", {AT(2, TRUTH, truths, first), AT(3, TRUTH, truths, second)}},
    {25, 9, false, "SOFTMAX", {AT(0, REAL, real, value)}},
    {26, 19, false, "SPACE_TO_DEPTH", ONE_WHOLE},
    {28, 0, false, "TANH", {{0}}},
    {34, 0, false, "PAD", {{0}}},
    {36, 23, false, "GATHER", TWO_WHOLES},
    {37, 0, false, "BATCH_TO_SPACE_ND", {{0}}},
    {38, 0, false, "SPACE_TO_BATCH_ND", {{0}}},
    {39, 0, false, "TRANSPOSE", {{0}}},
    {40, 27, false, "MEAN", REDUCER},
    {41, 28, false, "SUB", ADDITION},
    {42, 29, false, "DIV", FUSED},
    {43, 30, false, "SQUEEZE", {AT(0, LIST, list, items)}},
    {45, 32, false, "STRIDED_SLICE",
     {AT(0, WHOLE, slice, begin), AT(1, WHOLE, slice, end), AT(2, WHOLE, slice, ellipsis),
      AT(3, WHOLE, slice, new_axis), AT(4, WHOLE, slice, shrink), SINCE(8, 5, TRUTH, slice, is_offset)}},
    {47, 0, false, "EXP", {{0}}},
    {48, 0, false, "TOPK_V2", {{0}}},
    {49, 35, false, "SPLIT", ONE_WHOLE},
    {50, 0, false, "LOG_SOFTMAX", {{0}}},
    {53, 37, false, "CAST", {AT(0, TYPE, wholes, first), AT(1, TYPE, wholes, second)}},
    {54, 0, false, "PRELU", {{0}}},
    {55, 0, false, "MAXIMUM", {{0}}},
    {56, 40, false, "ARG_MAX", {AT(0, TYPE, whole, value)}},
    {57, 0, false, "MINIMUM", {{0}}},
    {58, 0, false, "LESS", {{0}}},
    {59, 0, false, "NEG", {{0}}},
    {60, 0, false, "PADV2", {{0}}},
    {61, 0, false, "GREATER", {{0}}},
    {62, 0, false, "GREATER_EQUAL", {{0}}},
    {63, 0, false, "LESS_EQUAL", {{0}}},
    {64, 0, false, "SELECT", {{0}}},
    {65, 0, false, "SLICE", {{0}}},
    {66, 0, false, "SIN", {{0}}},
    {67, 49, true, "TRANSPOSE_CONV",
     {AT(0, PADDING, transposed, padding), AT(1, WHOLE, transposed, stride_width),
      AT(2, WHOLE, transposed, stride_height), SINCE(4, 3, ACTIVATION, transposed, activation)}},
    {69, 0, false, "TILE", {{0}}},
    {70, 0, false, "EXPAND_DIMS", {{0}}},
    {71, 0, false, "EQUAL", {{0}}},
    {72, 0, false, "NOT_EQUAL", {{0}}},
    {73, 0, false, "LOG", {{0}}},
    {74, 27, false, "SUM", REDUCER},
    {75, 0, false, "SQRT", {{0}}},
    {76, 0, false, "RSQRT", {{0}}},
    {78, 0, false, "POW", {{0}}},
    {79, 57, false, "ARG_MIN", {AT(0, TYPE, whole, value)}},
    {81, 27, false, "REDUCE_PROD", REDUCER},
    {82, 27, false, "REDUCE_MAX", REDUCER},
    {83, 59, false, "PACK", TWO_WHOLES},
    {84, 0, false, "LOGICAL_OR", {{0}}},
    {85, 61, false, "ONE_HOT", ONE_WHOLE},
    {86, 0, false, "LOGICAL_AND", {{0}}},
    {87, 0, false, "LOGICAL_NOT", {{0}}},
    {88, 64, false, "UNPACK", TWO_WHOLES},
    {89, 27, false, "REDUCE_MIN", REDUCER},
    {90, 0, false, "FLOOR_DIV", {{0}}},
    {91, 27, false, "REDUCE_ANY", REDUCER},
    {92, 0, false, "SQUARE", {{0}}},
    {95, 0, false, "FLOOR_MOD", {{0}}},
    {97, 74, false, "RESIZE_NEAREST_NEIGHBOR", {AT(0, TRUTH, truths, first), AT(1, TRUTH, truths, second)}},
    {98, 75, false, "LEAKY_RELU", {AT(0, REAL, real, value)}},
    {99, 0, false, "SQUARED_DIFFERENCE", {{0}}},
    {100, 77, false, "MIRROR_PAD", {AT(0, MIRROR, whole, value)}},
    {101, 0, false, "ABS", {{0}}},
    {102, 79, false, "SPLIT_V", ONE_WHOLE},
    {104, 0, false, "CEIL", {{0}}},
    {105, 0, false, "REVERSE_V2", {{0}}},
    {106, 0, false, "ADD_N", {{0}}},
    {107, 0, false, "GATHER_ND", {{0}}},
    {108, 0, false, "COS", {{0}}},
    {111, 0, false, "ELU", {{0}}},
    {114, 0, false, "QUANTIZE", {{0}}},
    {116, 0, false, "ROUND", {{0}}},
    {117, 0, false, "HARD_SWISH", {{0}}},
    {123, 0, false, "SELECT_V2", {{0}}},
    {126, 101, false, "BATCH_MATMUL",
     {AT(0, TRUTH, truths, first), AT(1, TRUTH, truths, second), SINCE(4, 2, TRUTH, truths, third)}},
    {128, 102, false, "CUMSUM", {AT(0, TRUTH, truths, first), AT(1, TRUTH, truths, second)}},
    {130, 0, false, "BROADCAST_TO", {{0}}},
    {140, 27, false, "REDUCE_ALL", REDUCER},
    {150, 116, false, "GELU", {AT(0, TRUTH, truth, value)}},
    {152, 0, false, "RELU_0_TO_1", {{0}}},
    {156, 0, false, "ATAN2", {{0}}},
    {158, 0, false, "SIGN", {{0}}},
};

/* -- lookup ----------------------------------------------------------------------------------------------- */

const struct nnb_operator *nnb_operator_find(int32_t code) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (operators[i].code == code) {
            return &operators[i];
        }
    }
    return NULL;
}

const char *nnb_operator_name(const struct nnb_operator *operator) { return operator->name; }

uint32_t nnb_operator_union(const struct nnb_operator *operator) { return operator->table; }

bool nnb_operator_wants_bias(const struct nnb_operator *operator) { return operator->wants_bias; }

static bool is_there(const struct option *option, int version) {
    return option->kind != 0 && version >= option->since;
}

static int32_t whole_at(const struct option *option, const void *options) {
    int32_t value;
    memcpy(&value, (const uint8_t *)options + option->place, sizeof value);
    return value;
}

/* How many numbers a list has, which stands behind its room. */
static int32_t count_at(const struct option *option, const void *options) {
    int32_t count;
    memcpy(&count, (const uint8_t *)options + option->place + offsetof(struct list, count), sizeof count);
    return count;
}

static bool is_among(int32_t value, int32_t least, int32_t most, const char *what, struct nnb_reason *reason) {
    return (value >= least && value <= most) ||
           nnb_refuse(reason, "%s %d, expected %d to %d", what, value, least, most);
}

bool nnb_operator_check(const struct nnb_operator *operator, int version, const void *options, struct nnb_reason *reason) {
    if (operator->table != 0 && options == NULL) {
        return nnb_refuse(reason, "no options");
    }
    for (size_t i = 0; i < MOST_OPTIONS; i++) {
        const struct option *option = &operator->options[i];
        bool is_fine = true;
        if (!is_there(option, version)) {
            continue;
        }
        if (option->kind == ACTIVATION) {
            is_fine = is_among(whole_at(option, options), 0, MOST_ACTIVATION, "activation", reason);
        } else if (option->kind == PADDING) {
            is_fine = is_among(whole_at(option, options), SAME, VALID, "padding", reason);
        } else if (option->kind == MIRROR) {
            is_fine = is_among(whole_at(option, options), REFLECT, SYMMETRIC, "mode", reason);
        } else if (option->kind == FORMAT) {
            is_fine = is_among(whole_at(option, options), 0, SHUFFLED, "format of weights", reason);
        } else if (option->kind == LIST) {
            is_fine = is_among(count_at(option, options), 0, MOST_LISTED, "count", reason);
        } else if (option->kind == TYPE) {
            is_fine = nnb_type_find(whole_at(option, options)) != NULL ||
                      nnb_refuse(reason, "type %d", whole_at(option, options));
        }
        if (!is_fine) {
            return false;
        }
    }
    return true;
}

/* A field with an option's value; a list is referred to later. */
static struct nnb_field field_of(const struct option *option, const void *options) {
    const int32_t value = option->kind == TRUTH ? ((const uint8_t *)options)[option->place] != 0 : whole_at(option, options);
    switch (option->kind) {
    case WHOLE:
    case REAL: /* by its bits */
        return (struct nnb_field){option->number, 4, (uint32_t)value};
    case LIST:
        return (struct nnb_field){option->number, 4, 0};
    case PADDING: /* both count from 0 in the format */
    case MIRROR:
        return (struct nnb_field){option->number, 1, (uint32_t)(value - 1)};
    case TYPE:
        return (struct nnb_field){option->number, 1, nnb_type_find(value)->number};
    default:
        return (struct nnb_field){option->number, 1, (uint32_t)value};
    }
}

size_t nnb_operator_write(const struct nnb_operator *operator, int version, const void *options, struct nnb_flat *flat) {
    struct nnb_field fields[MOST_OPTIONS];
    size_t count = 0;
    for (size_t i = 0; i < MOST_OPTIONS; i++) {
        const struct option *option = &operator->options[i];
        if (is_there(option, version)) {
            fields[count++] = field_of(option, options);
        }
    }
    const size_t table = nnb_flat_table(flat, fields, count);
    for (size_t i = 0; i < MOST_OPTIONS; i++) {
        const struct option *option = &operator->options[i];
        if (is_there(option, version) && option->kind == LIST) {
            size_t numbers = nnb_flat_numbers(flat, (const uint8_t *)options + option->place,
                                              (size_t)count_at(option, options), sizeof(int32_t), sizeof(int32_t));
            nnb_flat_refer(flat, table, option->number, numbers);
        }
    }
    return table;
}
