/* Both ends of a burst in one process, for the C tests: channels in memory of exactly their size, so that the
 * sanitizers see every byte beyond, and packets whose results can be told apart. */
#ifndef NNB_BURST_PAIR_H
#define NNB_BURST_PAIR_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../burst_client.h"
#include "../burst_server.h"
#include "../clock.h"
#include "../event_flag.h"

#define PROMISE(condition) \
    do { \
        if (!(condition)) { \
            (void)fprintf(stderr, "broken: %s (%s:%d)\n", #condition, __FILE__, __LINE__); \
            exit(1); \
        } \
    } while (0)

enum { REQUEST_DATUMS = 3, RESULT_DATUMS = 4, KINDS = 6, NATIVE_KINDS = 4 };

/* What two processes would share; each part is an allocation of its own. */
struct channel {
    uint64_t capacity;
    nnb_atomic_u64 *read_counter;
    nnb_atomic_u64 *write_counter;
    nnb_atomic_u32 *flag;
    uint8_t *data;
};

static inline void *exactly(size_t bytes) {
    void *memory = calloc(1, bytes);
    PROMISE(memory != NULL);
    return memory;
}

static inline void open_channel(struct channel *channel, uint64_t capacity) {
    channel->capacity = capacity;
    channel->read_counter = exactly(sizeof *channel->read_counter);
    channel->write_counter = exactly(sizeof *channel->write_counter);
    channel->flag = exactly(sizeof *channel->flag);
    channel->data = exactly(capacity * NNB_DATUM_BYTES);
}

static inline void close_channel(struct channel *channel) {
    free(channel->read_counter);
    free(channel->write_counter);
    free(channel->flag);
    free(channel->data);
}

static inline void lay_ring(struct nnb_ring *ring, const struct channel *channel) {
    PROMISE(nnb_ring_init(ring, channel->data, channel->read_counter, channel->write_counter,
                          channel->capacity * NNB_DATUM_BYTES, NNB_DATUM_BYTES, 1) == NNB_RING_OK);
}

static inline void put_u32(uint8_t *datum, uint32_t offset, uint32_t value) {
    memcpy(datum + offset, &value, sizeof value);
}

/* A request of REQUEST_DATUMS elements that no other `kind` equals. */
static inline void make_request(uint8_t *packet, uint32_t kind, bool measured) {
    memset(packet, 0, REQUEST_DATUMS * NNB_DATUM_BYTES);
    packet[0] = NNB_REQUEST_PACKET_INFORMATION;
    put_u32(packet, NNB_REQUEST_PACKET_SIZE_OFFSET, REQUEST_DATUMS);
    put_u32(packet, NNB_REQUEST_NUMBER_OF_POOLS_OFFSET, 1);
    uint8_t *pool = packet + NNB_DATUM_BYTES;
    pool[0] = NNB_REQUEST_POOL_IDENTIFIER;
    put_u32(pool, NNB_REQUEST_VALUE_OFFSET, kind);
    uint8_t *timing = pool + NNB_DATUM_BYTES;
    timing[0] = NNB_REQUEST_MEASURE_TIMING;
    put_u32(timing, NNB_REQUEST_VALUE_OFFSET, measured ? NNB_MEASURE_YES : NNB_MEASURE_NO);
}

/* The result of `kind`: one output with the kind as its only dimension. */
static inline void make_result(uint8_t *packet, uint32_t kind) {
    uint8_t *timing = packet + (RESULT_DATUMS - 1) * NNB_DATUM_BYTES;
    nnb_result_error(timing - NNB_DATUM_BYTES, NNB_STATUS_NONE); /* its second element is the timing */
    memset(packet, 0, (RESULT_DATUMS - 1) * NNB_DATUM_BYTES);
    packet[0] = NNB_RESULT_PACKET_INFORMATION;
    put_u32(packet, NNB_RESULT_PACKET_SIZE_OFFSET, RESULT_DATUMS);
    put_u32(packet, NNB_RESULT_NUMBER_OF_OPERANDS_OFFSET, 1);
    uint8_t *operand = packet + NNB_DATUM_BYTES;
    operand[0] = NNB_RESULT_OPERAND_INFORMATION;
    operand[NNB_RESULT_IS_SUFFICIENT_OFFSET] = 1;
    put_u32(operand, NNB_RESULT_NUMBER_OF_DIMENSIONS_OFFSET, 1);
    uint8_t *dimension = operand + NNB_DATUM_BYTES;
    dimension[0] = NNB_RESULT_OPERAND_DIMENSION_VALUE;
    put_u32(dimension, NNB_RESULT_VALUE_OFFSET, kind);
}

/* The kind that a result packet of `count` elements is of; UINT32_MAX for any other packet. */
static inline uint32_t kind_of_result(const uint8_t *packet, uint32_t count) {
    uint8_t expected[RESULT_DATUMS * NNB_DATUM_BYTES];
    uint32_t kind;
    if (count != RESULT_DATUMS) {
        return UINT32_MAX;
    }
    memcpy(&kind, packet + 2 * NNB_DATUM_BYTES + NNB_RESULT_VALUE_OFFSET, sizeof kind);
    make_result(expected, kind);
    return memcmp(packet, expected, (RESULT_DATUMS - 1) * NNB_DATUM_BYTES) == 0 ? kind : UINT32_MAX;
}

/* The kind that a request packet asks for; UINT32_MAX for any other packet. */
static inline uint32_t kind_of_request(const uint8_t *packet, uint32_t count) {
    uint8_t expected[REQUEST_DATUMS * NNB_DATUM_BYTES];
    uint32_t kind;
    if (count != REQUEST_DATUMS) {
        return UINT32_MAX;
    }
    memcpy(&kind, packet + NNB_DATUM_BYTES + NNB_REQUEST_VALUE_OFFSET, sizeof kind);
    make_request(expected, kind, nnb_request_measures(packet, count));
    return memcmp(packet, expected, sizeof expected) == 0 ? kind : UINT32_MAX;
}

/* The client's end: a bound request for each kind, the odd ones measured. */
struct client_end {
    struct nnb_client client;
    struct nnb_bound bound[KINDS];
};

static inline void open_client(struct client_end *end, const struct channel *requests,
                               const struct channel *results, uint32_t max_in_flight) {
    memset(end, 0, sizeof *end);
    lay_ring(&end->client.requests, requests);
    lay_ring(&end->client.results, results);
    end->client.request_flag = requests->flag;
    end->client.result_flag = results->flag;
    end->client.packet = exactly(results->capacity * NNB_DATUM_BYTES);
    end->client.max_in_flight = max_in_flight;
    nnb_waiter_init(&end->client.waiter, 0, 20000);
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        uint8_t *request = exactly(REQUEST_DATUMS * NNB_DATUM_BYTES);
        make_request(request, kind, kind % 2 == 1);
        end->bound[kind] = (struct nnb_bound){
            .client = &end->client,
            .timeout_ns = 10000000000u,
            .request = request,
            .measured = kind % 2 == 1,
            .request_count = REQUEST_DATUMS,
            .result = exactly(results->capacity * NNB_DATUM_BYTES),
        };
    }
}

static inline void close_client(struct client_end *end) {
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        free((void *)(uintptr_t)end->bound[kind].request);
        free(end->bound[kind].result);
    }
    free(end->client.packet);
}

/* The driver's end: the first NATIVE_KINDS are bound to the null execution, the next one to its caller, the
 * last one is never known. */
struct server_end {
    struct nnb_server server;
    uint8_t *known[KINDS];
    uint8_t *result[KINDS];
    uint8_t error[2 * NNB_DATUM_BYTES];
    struct nnb_hosted *nothing; /* an execution of the null executor */
};

static inline struct nnb_hosted *bind_nothing(void) {
    const struct nnburst_executor *null = nnb_null_executor();
    const struct nnbx_request request = {.size = sizeof request, .argument_size = sizeof *request.inputs};
    char message[NNBX_MESSAGE_BYTES];
    int32_t status;
    struct nnb_hosted *bound = nnb_hosted_bind(null, NULL, &request, NULL, NULL, 1, 0, &status, message);
    PROMISE(bound != NULL && status == NNBX_NONE);
    return bound;
}

static inline void open_server(struct server_end *end, const struct channel *requests,
                               const struct channel *results, uint32_t max_in_flight) {
    memset(end, 0, sizeof *end);
    lay_ring(&end->server.requests, requests);
    lay_ring(&end->server.results, results);
    end->server.request_flag = requests->flag;
    end->server.result_flag = results->flag;
    end->server.wakeup_fd = -1;
    end->server.max_in_flight = max_in_flight;
    end->server.idle_ns = 10000000000u;
    end->server.stuck_ns = 10000000000u;
    end->server.packet = exactly(requests->capacity * NNB_DATUM_BYTES);
    end->server.waiting = exactly(results->capacity * NNB_DATUM_BYTES);
    nnb_waiter_init(&end->server.waiter, 0, 20000);
    end->nothing = bind_nothing();
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        end->known[kind] = exactly(REQUEST_DATUMS * NNB_DATUM_BYTES);
        end->result[kind] = exactly(RESULT_DATUMS * NNB_DATUM_BYTES);
        make_request(end->known[kind], kind, kind % 2 == 1);
        make_result(end->result[kind], kind);
        if (kind <= NATIVE_KINDS) {
            nnb_server_bind(&end->server, kind,
                            &(struct nnb_binding){
                                .request = end->known[kind],
                                .result = end->result[kind],
                                .run = kind < NATIVE_KINDS ? nnb_hosted_run : NULL,
                                .execution = (nnbx_execution *)(void *)end->nothing,
                                .request_count = REQUEST_DATUMS,
                                .result_count = RESULT_DATUMS,
                            });
        }
    }
}

static inline void close_server(struct server_end *end) {
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        free(end->known[kind]);
        free(end->result[kind]);
    }
    free(end->server.packet);
    free(end->server.waiting);
    nnb_hosted_free(end->nothing);
}

/* What the driver's Python would answer to MISS or CALL: a result, or an error for what it cannot read. */
static inline uint8_t *answer(struct server_end *end, uint32_t *count) {
    uint32_t kind = kind_of_request(end->server.packet, end->server.packet_count);
    if (kind < KINDS) {
        *count = RESULT_DATUMS;
        make_result(end->result[kind], kind);
        return end->result[kind];
    }
    *count = 2;
    nnb_result_error(end->error, NNB_STATUS_GENERAL_FAILURE);
    return end->error;
}

#endif
