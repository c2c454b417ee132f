/* Answers of an executor that returns whatever it likes: a status that exists comes of each, and shapes that the outputs
 * may have, or none.
 *
 *     hostile_executor [RUNS] [SEED]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../executor.h"
#include "burst_pair.h"
#include "random.h"

enum { OUTPUTS = 3, FLOAT_BYTES = 4, ROOM = 64 };

static uint64_t state;

static uint64_t draw(uint64_t below) { return next_random(&state) % below; }

/* A number that is likely to be taken wrongly. */
static uint32_t odd(void) {
    static const uint32_t numbers[] = {0, 1, 2, 3, 4, 15, 16, 17, 4096, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
    return numbers[draw(sizeof numbers / sizeof *numbers)];
}

static int32_t bind(nnbx_prepared *prepared, const struct nnbx_request *request,
                    nnbx_execution **execution, char *message) {
    (void)prepared;
    (void)request;
    memset(message, 'x', NNBX_MESSAGE_BYTES); /* without an end */
    *execution = draw(8) == 0 ? NULL : (nnbx_execution *)(void *)&state;
    return draw(8) == 0 ? (int32_t)odd() : NNBX_NONE;
}

static int32_t run(nnbx_execution *execution, const struct nnbx_run *how, struct nnbx_outcome *outcome) {
    (void)execution;
    (void)how;
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        struct nnbx_output_shape *shape = &outcome->shapes[i];
        shape->rank = draw(2) == 0 ? (uint32_t)draw(4) : odd();
        shape->is_sufficient = draw(4) == 0 ? odd() : 1;
        for (uint32_t axis = 0; axis < NNBX_MAX_RANK; axis++) {
            shape->dimensions[axis] = draw(2) == 0 ? (uint32_t)draw(5) : odd();
        }
    }
    outcome->shape_count = draw(4) == 0 ? odd() : OUTPUTS;
    if (draw(4) == 0) {
        outcome->shapes = (struct nnbx_output_shape *)(uintptr_t)8;
    }
    if (outcome->message != NULL) {
        memset(outcome->message, 'y', NNBX_MESSAGE_BYTES);
    }
    static const int32_t likely[] = {NNBX_NONE, NNBX_NONE, NNBX_OUTPUT_INSUFFICIENT_SIZE, NNBX_INVALID_ARGUMENT};
    return draw(4) == 0 ? (int32_t)odd() : likely[draw(4)];
}

static void destroy_execution(nnbx_execution *execution) { PROMISE((void *)execution == (void *)&state); }

static const struct nnburst_executor hostile = {.abi = NNBURST_EXECUTOR_ABI, .size = sizeof hostile, .bind = bind,
                                                .run = run, .destroy_execution = destroy_execution};

static bool exists(int32_t status) {
    return status >= NNBX_NONE && status <= NNBX_RESOURCE_EXHAUSTED_PERSISTENT;
}

/* What was reported fits what was bound. */
static void look_at(const struct nnbx_outcome *outcome, int32_t status, const struct nnbx_argument *outputs) {
    PROMISE(exists(status));
    PROMISE(outcome->shape_count == 0 || outcome->shape_count == OUTPUTS);
    PROMISE(outcome->shape_count == 0 || status == NNBX_NONE || status == NNBX_OUTPUT_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < outcome->shape_count; i++) {
        const struct nnbx_output_shape *shape = &outcome->shapes[i];
        PROMISE(shape->rank <= NNBX_MAX_RANK && shape->is_sufficient <= 1);
        PROMISE(outputs[i].rank == 0 || shape->rank == outputs[i].rank);
        uint64_t bytes = FLOAT_BYTES;
        for (uint32_t axis = 0; axis < shape->rank; axis++) {
            PROMISE(outputs[i].rank == 0 || outputs[i].dimensions[axis] == 0 ||
                    outputs[i].dimensions[axis] == shape->dimensions[axis]);
            bytes *= shape->dimensions[axis];
        }
        PROMISE(status != NNBX_NONE || bytes <= outputs[i].bytes);
    }
}

int main(int argc, char **argv) {
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 2 + 1;
    uint64_t kept = 0;
    uint64_t bound_count = 0;
    for (uint64_t i = 0; i < runs; bound_count++) {
        uint32_t extents[OUTPUTS][2];
        uint8_t *memory = exactly(OUTPUTS * ROOM);
        struct nnbx_argument outputs[OUTPUTS];
        uint64_t behind[OUTPUTS];
        const struct nnb_output_rule rules[OUTPUTS] = {{FLOAT_BYTES, 0}, {FLOAT_BYTES, 0}, {FLOAT_BYTES, 0}};
        for (uint32_t k = 0; k < OUTPUTS; k++) {
            extents[k][0] = (uint32_t)draw(4); /* 0 is open */
            extents[k][1] = (uint32_t)draw(4);
            outputs[k] = (struct nnbx_argument){.size = sizeof outputs[k], .data = memory + k * ROOM + draw(2),
                                                   .bytes = ROOM - 1, .dimensions = extents[k],
                                                   .rank = (uint32_t)draw(3)};
            behind[k] = draw(3) * 16;
        }
        const struct nnbx_request request = {.size = sizeof request, .argument_size = sizeof outputs[0],
                                                .outputs = outputs, .output_count = OUTPUTS};
        char message[NNBX_MESSAGE_BYTES];
        int32_t status = -1;
        struct nnb_hosted *bound = nnb_hosted_bind(&hostile, NULL, &request, rules, behind, 1u << draw(7),
                                                   (uint32_t)draw(33), &status, message);
        PROMISE(exists(status) && (bound != NULL) == (status == NNBX_NONE));
        PROMISE(memchr(message, 0, sizeof message) != NULL);
        for (uint32_t k = 0; k < 16 && bound != NULL; k++, i++) {
            const struct nnbx_run how = NNB_PLAIN_RUN(0);
            struct nnbx_outcome outcome = NNB_PLAIN_OUTCOME(draw(2) ? message : NULL);
            status = nnb_hosted_run((nnbx_execution *)(void *)bound, &how, &outcome);
            look_at(&outcome, status, outputs);
            PROMISE(outcome.message == NULL || memchr(message, 0, sizeof message) != NULL);
            kept += status == NNBX_NONE;
            uint8_t packet[64 * NNB_DATUM_BYTES];
            struct nnb_result_summary summary;
            uint32_t count = nnb_result_write(packet, draw(65), status, outcome.shapes, outcome.shape_count);
            PROMISE(count == 0 || nnb_result_check(packet, count, &summary));
        }
        if (bound != NULL) {
            nnb_hosted_free(bound);
        }
        free(memory);
    }
    printf("%" PRIu64 " answers of %" PRIu64 " executions, %" PRIu64 " of them a success\n", runs, bound_count, kept);
    return 0;
}
