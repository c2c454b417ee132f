#include "operations.h"

#include <math.h>
#include <string.h>

/* Codes of NNAPI. */
enum { FLOAT32 = 0, INT32 = 1, TENSOR_FLOAT32 = 3, TENSOR_INT32 = 4 };
enum operation {
    ADD = 0, FLOOR = 8, FULLY_CONNECTED = 9, LOGISTIC = 14, MUL = 18, RELU = 19, RELU1 = 20, RELU6 = 21,
    RESHAPE = 22, SOFTMAX = 25, TANH = 28, DIV = 30, SUB = 36, ABS = 38, EXP = 49, LOG = 60, MAXIMUM = 65,
    MINIMUM = 66, NEG = 67, RSQRT = 83, SIN = 85, SQRT = 88, HARD_SWISH = 99
};

/* ---- Compiling ----------------------------------------------------------------------------------------------- */

static const struct nnbx_operand *operand(const struct nnbx_subgraph *graph, uint32_t number) {
    return nnbx_operand_at(graph, number);
}

/* A tensor of float32 whose extents are all known, and that is not too large for the accelerator's memory. */
static bool is_plain(const struct nnbx_operand *tensor) {
    if (tensor->type != TENSOR_FLOAT32 || tensor->lifetime == NNBX_NO_VALUE || tensor->rank == 0 ||
        tensor->rank > NNBX_MAX_RANK) {
        return false;
    }
    uint64_t elements = nnbx_elements(tensor->dimensions, tensor->rank);
    return elements > 0 && elements <= MAX_TENSOR_ELEMENTS;
}

static bool is_constant(const struct nnbx_operand *found) {
    return found->lifetime == NNBX_CONSTANT_COPY || found->lifetime == NNBX_CONSTANT_REFERENCE;
}

/* A scalar that is known now. Its bytes may be shared: they are copied once, and the copy is looked at. */
static bool read_scalar(const struct nnbx_operand *scalar, int32_t type, void *value) {
    if (scalar->type != type || !is_constant(scalar) || scalar->value_bytes != 4) {
        return false;
    }
    memcpy(value, scalar->value, 4);
    return true;
}

static bool read_activation(const struct nnbx_operand *scalar, int32_t *activation) {
    return read_scalar(scalar, INT32, activation) && *activation >= 0 && *activation <= 3;
}

/* Whether two shapes, the last axes in line, give a third one. */
static bool broadcast_gives(const struct nnbx_operand *a, const struct nnbx_operand *b,
                            const struct nnbx_operand *to) {
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    if (to->rank != rank) {
        return false;
    }
    for (uint32_t back = 1; back <= rank; back++) {
        uint32_t of_a = back <= a->rank ? a->dimensions[a->rank - back] : 1;
        uint32_t of_b = back <= b->rank ? b->dimensions[b->rank - back] : 1;
        if ((of_a != of_b && of_a != 1 && of_b != 1) ||
            to->dimensions[rank - back] != (of_a == 1 ? of_b : of_a)) {
            return false;
        }
    }
    return true;
}

static bool same_shape(const struct nnbx_operand *a, const struct nnbx_operand *b) {
    return a->rank == b->rank && memcmp(a->dimensions, b->dimensions, a->rank * sizeof *a->dimensions) == 0;
}

static bool compile_fully_connected(const struct nnbx_operand *x, const struct nnbx_operand *weights,
                                    const struct nnbx_operand *bias, const struct nnbx_operand *to) {
    if (!is_plain(x) || !is_plain(weights) || !is_plain(bias) || weights->rank != 2 || bias->rank != 1 ||
        to->rank != 2 || bias->dimensions[0] != weights->dimensions[0]) {
        return false;
    }
    uint64_t elements = nnbx_elements(x->dimensions, x->rank);
    return elements % weights->dimensions[1] == 0 && to->dimensions[0] == elements / weights->dimensions[1] &&
           to->dimensions[1] == weights->dimensions[0];
}

/* SOFTMAX(x, beta[, axis]): the axis may be counted from the back, and is the last one if it is not there. */
static bool compile_softmax(const struct nnbx_subgraph *graph, const struct nnbx_operation *operation,
                            const struct nnbx_operand *x, struct step *step) {
    int32_t axis = -1;
    if (!read_scalar(operand(graph, operation->inputs[1]), FLOAT32, &step->beta) || !(step->beta > 0) ||
        !isfinite(step->beta) ||
        (operation->input_count > 2 && !read_scalar(operand(graph, operation->inputs[2]), INT32, &axis)) ||
        axis < -(int32_t)x->rank || axis >= (int32_t)x->rank) {
        return false;
    }
    step->axis = (uint32_t)(axis < 0 ? axis + (int32_t)x->rank : axis);
    return true;
}

bool compile_operation(const struct nnbx_subgraph *graph, const struct nnbx_operation *operation,
                       struct step *step) {
    if (operation->input_count == 0 || operation->output_count != 1) {
        return false;
    }
    const struct nnbx_operand *x = operand(graph, operation->inputs[0]);
    const struct nnbx_operand *to = operand(graph, operation->outputs[0]);
    const struct nnbx_operand *second = operation->input_count > 1 ? operand(graph, operation->inputs[1]) : NULL;
    if (!is_plain(x) || !is_plain(to)) {
        return false;
    }
    *step = (struct step){.type = operation->type, .output = operation->outputs[0]};
    for (uint32_t i = 0; i < 3; i++) {
        step->inputs[i] = operation->inputs[i < operation->input_count ? i : 0];
    }
    switch ((enum operation)operation->type) {
    case ADD:
    case SUB:
    case MUL:
    case DIV:
        return operation->input_count == 3 && is_plain(second) && broadcast_gives(x, second, to) &&
               read_activation(operand(graph, operation->inputs[2]), &step->activation);
    case MAXIMUM:
    case MINIMUM:
        return second && is_plain(second) && broadcast_gives(x, second, to);
    case FLOOR:
    case LOGISTIC:
    case RELU:
    case RELU1:
    case RELU6:
    case TANH:
    case ABS:
    case EXP:
    case LOG:
    case NEG:
    case RSQRT:
    case SIN:
    case SQRT:
    case HARD_SWISH:
        return same_shape(x, to);
    case RESHAPE:
        return second && is_constant(second) &&
               nnbx_elements(x->dimensions, x->rank) == nnbx_elements(to->dimensions, to->rank);
    case SOFTMAX:
        return second && same_shape(x, to) && compile_softmax(graph, operation, x, step);
    case FULLY_CONNECTED:
        return operation->input_count == 4 &&
               compile_fully_connected(x, second, operand(graph, operation->inputs[2]), to) &&
               read_activation(operand(graph, operation->inputs[3]), &step->activation);
    }
    return false;
}

/* ---- Running ------------------------------------------------------------------------------------------------- */

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* FuseCode of NNAPI. */
static float activate(float x, int32_t activation) {
    switch (activation) {
    case 1:
        return x < 0 ? 0 : x;
    case 2:
        return clamp(x, -1, 1);
    case 3:
        return clamp(x, 0, 6);
    default:
        return x;
    }
}

static float of_one(int32_t type, float x) {
    switch ((enum operation)type) {
    case FLOOR:
        return floorf(x);
    case LOGISTIC:
        return (float)(1.0 / (1.0 + exp(-(double)x)));
    case RELU:
        return activate(x, 1);
    case RELU1:
        return activate(x, 2);
    case RELU6:
        return activate(x, 3);
    case TANH:
        return tanhf(x);
    case ABS:
        return fabsf(x);
    case EXP:
        return expf(x);
    case LOG:
        return logf(x);
    case NEG:
        return -x;
    case RSQRT:
        return 1.0f / sqrtf(x);
    case SIN:
        return sinf(x);
    case SQRT:
        return sqrtf(x);
    default: /* HARD_SWISH */
        return x * clamp(x + 3, 0, 6) / 6;
    }
}

static float of_two(int32_t type, float a, float b) {
    switch ((enum operation)type) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MAXIMUM:
        return a > b || isnan(a) ? a : b;
    default: /* MINIMUM */
        return a < b || isnan(a) ? a : b;
    }
}

/* How far an operand moves when an axis of the result does: not at all where it is broadcast. */
static void strides_in(const struct tensor *tensor, const struct tensor *to, uint64_t *strides) {
    uint64_t step = 1;
    for (uint32_t back = 1; back <= to->rank; back++) {
        uint32_t extent = back <= tensor->rank ? tensor->dimensions[tensor->rank - back] : 1;
        strides[to->rank - back] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

static void run_pairs(const struct step *step, const struct tensor *tensors, const float *a, const float *b, float *to) {
    const struct tensor *result = &tensors[step->output];
    uint64_t of_a[NNBX_MAX_RANK], of_b[NNBX_MAX_RANK];
    uint32_t at[NNBX_MAX_RANK] = {0};
    uint64_t in_a = 0, in_b = 0;
    strides_in(&tensors[step->inputs[0]], result, of_a);
    strides_in(&tensors[step->inputs[1]], result, of_b);
    for (uint64_t i = 0; i < result->elements; i++) {
        to[i] = activate(of_two(step->type, a[in_a], b[in_b]), step->activation);
        for (uint32_t axis = result->rank; axis-- > 0;) {
            in_a += of_a[axis];
            in_b += of_b[axis];
            if (++at[axis] < result->dimensions[axis]) {
                break;
            }
            in_a -= of_a[axis] * result->dimensions[axis];
            in_b -= of_b[axis] * result->dimensions[axis];
            at[axis] = 0;
        }
    }
}

static void run_fully_connected(const struct step *step, const struct tensor *tensors, const float *x,
                                const float *weights, const float *bias, float *to) {
    uint32_t batches = tensors[step->output].dimensions[0];
    uint32_t units = tensors[step->output].dimensions[1];
    uint32_t size = tensors[step->inputs[1]].dimensions[1];
    for (uint32_t batch = 0; batch < batches; batch++, x += size) {
        for (uint32_t unit = 0; unit < units; unit++) {
            double sum = (double)bias[unit];
            for (uint32_t i = 0; i < size; i++) {
                sum += (double)x[i] * (double)weights[(uint64_t)unit * size + i];
            }
            *to++ = activate((float)sum, step->activation);
        }
    }
}

static void run_softmax(const struct step *step, const struct tensor *tensor, const float *x, float *to) {
    uint64_t stride = 1;
    for (uint32_t axis = step->axis + 1; axis < tensor->rank; axis++) {
        stride *= tensor->dimensions[axis];
    }
    uint32_t extent = tensor->dimensions[step->axis];
    for (uint64_t first = 0; first < tensor->elements; first++) {
        if (first / stride % extent != 0) {
            continue;
        }
        float most = x[first];
        double sum = 0;
        for (uint32_t i = 1; i < extent; i++) {
            most = fmaxf(most, x[first + i * stride]);
        }
        for (uint32_t i = 0; i < extent; i++) {
            sum += exp(((double)x[first + i * stride] - (double)most) * (double)step->beta);
        }
        for (uint32_t i = 0; i < extent; i++) {
            to[first + i * stride] =
                (float)(exp(((double)x[first + i * stride] - (double)most) * (double)step->beta) / sum);
        }
    }
}

void run_step(const void *argument, uint32_t number, uint8_t *memory) {
    const struct program *program = argument;
    const struct step *step = &program->steps[number];
    const struct tensor *tensors = program->tensors;
    const float *in[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = (const float *)(const void *)(memory + tensors[step->inputs[i]].at);
    }
    const struct tensor *result = &tensors[step->output];
    float *to = (float *)(void *)(memory + result->at);
    switch ((enum operation)step->type) {
    case ADD:
    case SUB:
    case MUL:
    case DIV:
    case MAXIMUM:
    case MINIMUM:
        run_pairs(step, tensors, in[0], in[1], to);
        break;
    case FULLY_CONNECTED:
        run_fully_connected(step, tensors, in[0], in[1], in[2], to);
        break;
    case SOFTMAX:
        run_softmax(step, result, in[0], to);
        break;
    case RESHAPE:
        memcpy(to, in[0], result->elements * sizeof *to);
        break;
    default:
        for (uint64_t i = 0; i < result->elements; i++) {
            to[i] = of_one(step->type, in[0][i]);
        }
        break;
    }
}
