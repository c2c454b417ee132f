/* Both ends of a burst, each opposite a peer that writes the input into rings, counters and flags.
 * Whatever that is, a request is either one whose bytes the driver owns or an unknown one of at most a ring's
 * length, a result is well-formed or refused, and no count falls below zero. */
#include "../../burst_client.h"
#include "../../burst_server.h"
#include "input.h"

enum { KNOWN = 2, DATUMS = 3 };

struct channel {
    nnb_atomic_u64 *read_counter;
    nnb_atomic_u64 *write_counter;
    nnb_atomic_u32 *flag;
    uint8_t *data;
    uint64_t capacity;
};

static uint64_t executed;

/* The first kind succeeds as it did before; the others report shapes, which not every ring has room for. */
static int32_t execute(nnbx_execution *execution, const struct nnbx_run *run,
                       struct nnbx_outcome *outcome) {
    static struct nnbx_output_shape shapes[] = {{2, 1, {3, 4}}, {0, 1, {0}}, {1, 0, {7}}};
    uint32_t kind = *(uint32_t *)(void *)execution;
    PROMISE(run->deadline_ns == NNBX_NO_DEADLINE);
    executed++;
    if (kind == 0) {
        return NNB_STATUS_NONE;
    }
    outcome->shapes = shapes;
    outcome->shape_count = 1 + (uint32_t)(executed % 3);
    return executed % 2 ? NNB_STATUS_OUTPUT_INSUFFICIENT_SIZE : NNB_STATUS_MISSED_DEADLINE_TRANSIENT;
}

static void open_channel(struct channel *channel, uint64_t capacity) {
    channel->capacity = capacity;
    channel->read_counter = exactly(sizeof *channel->read_counter);
    channel->write_counter = exactly(sizeof *channel->write_counter);
    channel->flag = exactly(sizeof *channel->flag);
    channel->data = exactly(capacity * NNB_DATUM_BYTES);
}

static void close_channel(struct channel *channel) {
    free(channel->read_counter);
    free(channel->write_counter);
    free(channel->flag);
    free(channel->data);
}

static void lay_ring(struct nnb_ring *ring, struct channel *channel) {
    PROMISE(nnb_ring_init(ring, channel->data, channel->read_counter, channel->write_counter,
                          channel->capacity * NNB_DATUM_BYTES, NNB_DATUM_BYTES, 1) == NNB_RING_OK);
}

static void put_u32(uint8_t *to, uint32_t value) { memcpy(to, &value, sizeof value); }

static void make_request(uint8_t *packet, uint32_t number) {
    memset(packet, 0, DATUMS * NNB_DATUM_BYTES);
    packet[0] = NNB_REQUEST_PACKET_INFORMATION;
    put_u32(packet + NNB_REQUEST_PACKET_SIZE_OFFSET, DATUMS);
    put_u32(packet + NNB_REQUEST_NUMBER_OF_POOLS_OFFSET, 1);
    packet[NNB_DATUM_BYTES] = NNB_REQUEST_POOL_IDENTIFIER;
    put_u32(packet + NNB_DATUM_BYTES + NNB_REQUEST_VALUE_OFFSET, number);
    packet[2 * NNB_DATUM_BYTES] = NNB_REQUEST_MEASURE_TIMING;
    put_u32(packet + 2 * NNB_DATUM_BYTES + NNB_REQUEST_VALUE_OFFSET, number % 2);
}

/* What the peer does to a channel: whole packets that are nearly right, bytes, counters, the flag. */
static void attack(struct channel *channel, struct input *input, const uint8_t *sample, uint64_t datums) {
    uint64_t bytes = channel->capacity * NNB_DATUM_BYTES;
    uint64_t write = nnb_load_relaxed_u64(channel->write_counter);
    uint8_t how = take_u8(input);
    switch (how % 6) {
    case 0: /* publishes a packet, here and there with another byte */
        for (uint64_t i = 0; i < datums * NNB_DATUM_BYTES; i++) {
            channel->data[(write + i) % bytes] = sample[i];
        }
        for (uint8_t changes = how >> 4; changes != 0; changes--) {
            uint64_t at = write + (uint64_t)take_u8(input) % (datums * NNB_DATUM_BYTES);
            channel->data[at % bytes] = take_u8(input);
        }
        nnb_store_release_u64(channel->write_counter, write + datums * NNB_DATUM_BYTES);
        break;
    case 1: /* publishes so many elements of whatever lies there */
        nnb_store_release_u64(channel->write_counter, write + (uint64_t)take_u8(input) * NNB_DATUM_BYTES);
        break;
    case 2:
        take_bytes(input, channel->data + (uint64_t)take_u8(input) % channel->capacity * NNB_DATUM_BYTES,
                   NNB_DATUM_BYTES);
        break;
    case 3:
        nnb_store_relaxed_u64(channel->write_counter, take_counter(input, write, bytes));
        break;
    case 4:
        nnb_store_relaxed_u64(channel->read_counter,
                              take_counter(input, nnb_load_relaxed_u64(channel->read_counter), bytes));
        break;
    default:
        nnb_store_release_u32(channel->flag, take_u8(input));
        break;
    }
}

/* Reads a channel as an honest peer would, so that there is room again. */
static void drain(struct channel *channel) {
    nnb_store_release_u64(channel->read_counter, nnb_load_acquire_u64(channel->write_counter));
}

static void fuzz_server(struct input *input, uint32_t max_in_flight) {
    static uint32_t kinds[KNOWN] = {0, 1};
    struct channel requests;
    struct channel results;
    uint8_t known[KNOWN][DATUMS * NNB_DATUM_BYTES];
    uint8_t result[2 * NNB_DATUM_BYTES];
    uint8_t reply[2 * NNB_DATUM_BYTES];
    struct nnb_server *server = exactly(sizeof *server);
    open_channel(&requests, 4 + take_u8(input) % 8);
    open_channel(&results, 2 + take_u8(input) % 8);
    lay_ring(&server->requests, &requests);
    lay_ring(&server->results, &results);
    server->request_flag = requests.flag;
    server->result_flag = results.flag;
    server->wakeup_fd = -1;
    server->max_in_flight = max_in_flight;
    server->packet = exactly(requests.capacity * NNB_DATUM_BYTES);
    server->waiting = exactly(results.capacity * NNB_DATUM_BYTES);
    nnb_waiter_init(&server->waiter, 0, 0);
    nnb_result_error(result, NNB_STATUS_NONE);
    for (uint32_t i = 0; i < KNOWN; i++) {
        make_request(known[i], i);
        nnb_server_bind(server, i,
                        &(struct nnb_binding){.request = known[i], .result = i == 0 ? result : NULL,
                                              .run = execute,
                                              .execution = (nnbx_execution *)(void *)&kinds[i],
                                              .request_count = DATUMS, .result_count = 2});
    }
    int event = NNB_SERVER_IDLE;
    while (input->left != 0 && event < NNB_SERVER_CORRUPT) {
        attack(take_u8(input) % 4 == 0 ? &results : &requests, input, known[input->left % KNOWN], DATUMS);
        if (input->left % 8 == 0) {
            drain(&results);
        }
        server->idle_reported = 0;
        uint64_t before = executed;
        event = nnb_server_next(server, NULL, 0, 0, NNBX_MEASURED);
        PROMISE(event >= NNB_SERVER_MISS && event <= NNB_SERVER_LOST);
        PROMISE(event != NNB_SERVER_ATTENTION && event != NNB_SERVER_CALL);
        if (executed != before) { /* `packet` may hold a later one by now */
            PROMISE(server->packet_count <= requests.capacity);
        }
        for (int i = 0; event == NNB_SERVER_MISS && i < 32; i++) {
            PROMISE(server->packet_count > 0 && server->packet_count <= requests.capacity);
            PROMISE(server->packet_count != DATUMS ||
                    (memcmp(server->packet, known[0], sizeof known[0]) != 0 &&
                     memcmp(server->packet, known[1], sizeof known[1]) != 0));
            nnb_result_error(reply, NNB_STATUS_INVALID_ARGUMENT);
            event = nnb_server_next(server, reply, 2, 0, NNBX_MEASURED);
        }
    }
    free(server->packet);
    free(server->waiting);
    free(server);
    close_channel(&requests);
    close_channel(&results);
}

static void fuzz_client(struct input *input, uint32_t max_in_flight) {
    struct channel requests;
    struct channel results;
    uint8_t request[DATUMS * NNB_DATUM_BYTES];
    uint8_t sample[2 * NNB_DATUM_BYTES];
    struct nnb_client *client = exactly(sizeof *client);
    open_channel(&requests, 4 + take_u8(input) % 8);
    open_channel(&results, 2 + take_u8(input) % 8);
    lay_ring(&client->requests, &requests);
    lay_ring(&client->results, &results);
    client->request_flag = requests.flag;
    client->result_flag = results.flag;
    client->packet = exactly(results.capacity * NNB_DATUM_BYTES);
    client->max_in_flight = max_in_flight;
    nnb_waiter_init(&client->waiter, 0, 0);
    make_request(request, 1);
    nnb_result_error(sample, NNB_STATUS_NONE);
    struct nnb_bound bound = {.client = client, .request = request, .request_count = DATUMS,
                              .result = exactly(results.capacity * NNB_DATUM_BYTES), .measured = 1};
    while (input->left != 0) {
        int status;
        attack(take_u8(input) % 4 == 0 ? &requests : &results, input, sample, 2);
        switch (take_u8(input) % 7) {
        case 0: status = nnb_client_run(&bound); break;
        case 1: status = nnb_client_submit(&bound); break;
        case 2: status = nnb_client_collect(&bound, 0); break;
        case 3: status = nnb_client_arm(client); break;
        case 4: status = nnb_client_forsake(client); break;
        case 5: status = nnb_client_run_at_once(&bound); break;
        default:
            drain(&requests);
            continue;
        }
        PROMISE(status >= NNB_CLIENT_SAME && status <= NNB_CLIENT_SENT);
        PROMISE(status != NNB_CLIENT_BUSY && status != NNB_CLIENT_INTERRUPTED);
        PROMISE(client->in_flight <= client->max_in_flight && client->overdue <= client->in_flight);
        if (bound.result_count != 0) {
            struct nnb_result_summary summary;
            PROMISE(bound.result_count <= results.capacity);
            PROMISE(nnb_result_check(bound.result, bound.result_count, &summary));
        }
    }
    free(bound.result);
    free(client->packet);
    free(client);
    close_channel(&requests);
    close_channel(&results);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    uint8_t kind = take_u8(&input);
    uint32_t max_in_flight = kind & 2 ? 4 : 1;
    if (kind & 1) {
        fuzz_server(&input, max_in_flight);
    } else {
        fuzz_client(&input, max_in_flight);
    }
    return 0;
}
