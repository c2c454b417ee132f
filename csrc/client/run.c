/* Executions: each is one call of burst_client.c; then a program can query the latest one. Between a run and
 * its return nothing is allocated, no lock is taken, and no text is written. */
#include <string.h>
#include <sys/socket.h>

#include "client/client.h"
#include "clock.h"
#include "wire.h"

/* Checks that a request can be sent; without a text, since it is part of a run. */
static int check_ready(const nnburst_request *request) {
    if (request == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    return request->is_bound && nnb_is_ours(request->burst->model->device) ? NNBURST_NO_ERROR
                                                                          : NNBURST_BAD_STATE;
}

/* The ResultCode for a status that burst_client.c returned for a side of a request; NO_ERROR if it was
 * executed. */
static int conclude(nnburst_request *request, uint32_t side, int code) {
    nnburst_burst *burst = request->burst;
    struct nnb_connection *connection = &burst->model->device->connection;
    int32_t status = NNB_STATUS_NONE;
    switch (code) {
    case NNB_CLIENT_RESULT:
        status = request->sides[side].bound.summary.status;
        /* fall through */
    case NNB_CLIENT_SAME:
    case NNB_CLIENT_SAME_BUT_TIMING:
        request->last = side;
        if (status != NNB_STATUS_NONE) {
            return nnb_code_of_status(status);
        }
        if (request->burst->model->served.state_count != 0) {
            request->turn = 1 - side; /* what was written is read next */
        }
        return NNBURST_NO_ERROR;
    case NNB_CLIENT_TIMED_OUT:
        return NNBURST_MISSED_DEADLINE;
    case NNB_CLIENT_BUSY:
    case NNB_CLIENT_IN_FLIGHT:
        return nnb_connection_is_alive(connection) ? NNBURST_BUSY : NNBURST_DEAD_OBJECT;
    case NNB_CLIENT_STOPPED:
        return nnb_connection_is_alive(connection) ? NNBURST_OP_FAILED : NNBURST_DEAD_OBJECT;
    case NNB_CLIENT_CORRUPT:
    case NNB_CLIENT_SURPLUS:
        nnb_stop_burst(burst); /* client and driver are out of step */
        return NNBURST_OP_FAILED;
    default:
        return NNBURST_OP_FAILED;
    }
}

/* Removes the oldest request from the queue. */
static void take_submitted(nnburst_burst *burst) {
    nnburst_request *request = burst->submitted[burst->first_submitted];
    if (request != NULL) {
        request->is_submitted = false;
    }
    burst->first_submitted = (burst->first_submitted + 1) % burst->options.max_in_flight;
    burst->submitted_count--;
}

/* Drops the results of requests that were freed while they were under way, if they are the oldest ones. */
static void forsake_freed(nnburst_burst *burst) {
    while (burst->submitted_count != 0 && burst->submitted[burst->first_submitted] == NULL &&
           nnb_client_forsake(&burst->client) == NNB_CLIENT_RESULT) {
        take_submitted(burst);
    }
}

int nnburst_run(nnburst_request *request, uint64_t timeout_ns) {
    int code = check_ready(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    forsake_freed(request->burst);
    uint32_t side = request->turn;
    struct nnb_bound *bound = &request->sides[side].bound;
    bound->timeout_ns = timeout_ns;
    code = nnb_client_run(bound);
    while (code == NNB_CLIENT_IN_FLIGHT && bound->client->overdue != 0) {
        uint64_t now = nnb_now_ns(); /* a late result comes first */
        if (now >= bound->deadline_ns) {
            code = NNB_CLIENT_TIMED_OUT;
            break;
        }
        bound->timeout_ns = bound->deadline_ns - now;
        code = nnb_client_run(bound);
    }
    if (code == NNB_CLIENT_INTERRUPTED) {
        code = nnb_client_wait_on(bound);
    }
    return conclude(request, side, code);
}

int nnburst_timing(const nnburst_request *request, uint64_t *on_device_us, uint64_t *in_driver_us) {
    if (request == NULL || on_device_us == NULL || in_driver_us == NULL) {
        return nnb_fail_null(request == NULL ? "request" : "on_device_us, in_driver_us");
    }
    int code = nnb_check_ours(request->burst->model->device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    const struct nnb_result_summary *summary = &request->sides[request->last].bound.summary;
    if (!request->is_bound || !request->is_measured || summary->time_in_driver == NNB_NO_TIMING) {
        return nnb_fail(NNBURST_BAD_STATE, "the request was not measured, or has not been executed");
    }
    *on_device_us = summary->time_on_device;
    *in_driver_us = summary->time_in_driver;
    return NNBURST_NO_ERROR;
}

static uint32_t result_u32(const struct nnb_bound *bound, uint32_t element, uint32_t offset) {
    uint32_t value;
    memcpy(&value, bound->result + (size_t)element * NNB_DATUM_BYTES + offset, sizeof value);
    return value;
}

/* The element that describes an output in the last result, which nnb_result_check has checked; 0 if the
 * driver left shapes out. */
static uint32_t find_shape(const struct nnb_bound *bound, uint32_t output, uint32_t *rank) {
    uint32_t operands =
        bound->result_count == 0 ? 0 : result_u32(bound, 0, NNB_RESULT_NUMBER_OF_OPERANDS_OFFSET);
    uint32_t element = 1;
    for (uint32_t i = 0; i < operands; i++) {
        *rank = result_u32(bound, element, NNB_RESULT_NUMBER_OF_DIMENSIONS_OFFSET);
        if (i == output) {
            return element;
        }
        element += 1 + *rank;
    }
    return 0;
}

int nnburst_output_dimensions(const nnburst_request *request, uint32_t index, uint32_t *dimensions,
                              uint32_t *rank) {
    if (request == NULL || rank == NULL || (dimensions == NULL && *rank != 0)) {
        return nnb_fail_null(request == NULL ? "request" : rank == NULL ? "rank" : "dimensions");
    }
    const nnburst_model *model = request->burst->model;
    int code = nnb_check_ours(model->device);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    if (index >= model->output_count) {
        return nnb_fail_no_such("output", index);
    }
    if (!request->is_bound) {
        return nnb_fail(NNBURST_BAD_STATE, "the request is not bound");
    }
    const struct nnb_bound *bound = &request->sides[request->last].bound;
    const struct nnb_served_argument *argument = &model->served.outputs[model->outputs[index]];
    uint32_t found = argument->rank;
    uint32_t element = find_shape(bound, model->outputs[index], &found);
    if (element == 0) {
        found = argument->rank;
    }
    if (found > *rank) {
        return nnb_fail(NNBURST_BAD_DATA, "rank: room for %u extents, the output has %u", *rank, found);
    }
    for (uint32_t i = 0; i < found; i++) {
        dimensions[i] = element == 0 ? argument->dimensions[i]
                                     : result_u32(bound, element + 1 + i, NNB_RESULT_VALUE_OFFSET);
    }
    *rank = found;
    return NNBURST_NO_ERROR;
}

/* -- event loops ------------------------------------------------------------------------------------------ */

int nnburst_submit(nnburst_request *request) {
    int code = check_ready(request);
    if (code != NNBURST_NO_ERROR) {
        return code;
    }
    nnburst_burst *burst = request->burst;
    forsake_freed(burst);
    if (request->is_submitted || burst->submitted_count == burst->options.max_in_flight) {
        return NNBURST_BUSY;
    }
    code = nnb_client_submit(&request->sides[request->turn].bound);
    if (code != NNB_CLIENT_RESULT) {
        return conclude(request, request->turn, code);
    }
    uint32_t last = (burst->first_submitted + burst->submitted_count) % burst->options.max_in_flight;
    burst->submitted[last] = request;
    burst->submitted_count++;
    request->is_submitted = true;
    return NNBURST_NO_ERROR;
}

int nnburst_poll(nnburst_burst *burst) {
    if (burst == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    struct nnb_connection *connection = &burst->model->device->connection;
    if (!nnb_is_ours(burst->model->device)) {
        return NNBURST_BAD_STATE;
    }
    forsake_freed(burst);
    uint8_t kicks[64];
    while (recv(burst->kicks, kicks, sizeof kicks, MSG_DONTWAIT) == (ssize_t)sizeof kicks) {
        continue;
    }
    switch (nnb_client_arm(&burst->client)) {
    case NNB_CLIENT_RESULT:
        return NNBURST_NO_ERROR;
    case NNB_CLIENT_TIMED_OUT:
        return NNBURST_INCOMPLETE;
    case NNB_CLIENT_BUSY:
        return NNBURST_BUSY;
    case NNB_CLIENT_STOPPED:
        return nnb_connection_is_alive(connection) ? NNBURST_OP_FAILED : NNBURST_DEAD_OBJECT;
    default:
        nnb_stop_burst(burst);
        return NNBURST_OP_FAILED;
    }
}

int nnburst_collect(nnburst_burst *burst, uint64_t timeout_ns, nnburst_request **request) {
    if (burst == NULL || request == NULL) {
        return NNBURST_UNEXPECTED_NULL;
    }
    *request = NULL;
    if (!nnb_is_ours(burst->model->device)) {
        return NNBURST_BAD_STATE;
    }
    forsake_freed(burst);
    if (burst->submitted_count == 0) {
        return NNBURST_BAD_STATE;
    }
    nnburst_request *oldest = burst->submitted[burst->first_submitted];
    if (oldest == NULL) {
        return NNBURST_BUSY; /* another thread is inside, so the result of a freed request could not be
                              * dropped */
    }
    uint32_t side = oldest->turn;
    uint64_t deadline = nnb_deadline_after(nnb_now_ns(), timeout_ns);
    int code = nnb_client_collect(&oldest->sides[side].bound, timeout_ns);
    while (code == NNB_CLIENT_INTERRUPTED) {
        uint64_t now = nnb_now_ns();
        code = nnb_client_collect(&oldest->sides[side].bound, now < deadline ? deadline - now : 0);
    }
    if (code != NNB_CLIENT_TIMED_OUT && code != NNB_CLIENT_BUSY) {
        take_submitted(burst);
        *request = oldest;
    }
    return conclude(oldest, side, code);
}
