/* A thread that flips bits of everything that a peer can reach, while the null executor serves a client: first
 * the bytes of both rings, then the counters, the event flags and the death word, too. Each outcome must be a
 * valid result or an error, each execution that of a request whose bytes the driver owns, and a burst on other
 * memory must not notice anything. For ASan. Usage: hostile_peer EXECUTIONS [SEED] */
#include <pthread.h>

#include "../liveness.h"
#include "burst_pair.h"
#include "random.h"

/* ATTACKS: how many each execution lets the adversary make, so that the share of requests that arrive whole
 * does not depend on how fast its thread is beside the other (an emulator's are far apart). */
enum { PAIRS = 2, MOST_STEPS = 64, ATTACKS = 12 };

struct pair {
    struct channel requests;
    struct channel results;
    struct client_end client;
    struct server_end server;
    uint32_t max_in_flight;
};

static struct pair victims[PAIRS];
static struct pair bystander;
static nnb_atomic_u32 *death_word;
static nnb_atomic_u32 words_too; /* whether the adversary also writes words */
static nnb_atomic_u32 stop;
static nnb_atomic_u64 allowed; /* attacks */
static uint64_t native_executions;
static uint64_t outcomes[16];
static uint64_t events[8];

/* A counter that tends to be possible, or nearly. */
static uint64_t hostile_counter(nnb_atomic_u64 *counter, const struct channel *channel, uint64_t chance) {
    uint64_t now = nnb_load_relaxed_u64(counter);
    switch (chance >> 8 & 7) {
    case 0: return chance;
    case 1: return now + (channel->capacity + 1) * NNB_DATUM_BYTES;
    case 2: return now ^ 1u << (chance & 31);
    case 3: return now - NNB_DATUM_BYTES;
    default: return now + chance % (channel->capacity + 1) * NNB_DATUM_BYTES;
    }
}

static void attack_words(struct channel *channel, uint64_t chance) {
    switch (chance & 7) {
    case 0:
        nnb_store_relaxed_u64(channel->read_counter,
                              hostile_counter(channel->read_counter, channel, chance));
        break;
    case 1:
        nnb_store_relaxed_u64(channel->write_counter,
                              hostile_counter(channel->write_counter, channel, chance));
        break;
    case 2:
        nnb_store_release_u32(death_word, (uint32_t)(chance >> 16) & ~(chance & 64 ? 0 : 0x40000000u));
        break;
    default:
        nnb_store_release_u32(channel->flag, (uint32_t)(chance >> 16));
        break;
    }
}

static void *attack(void *argument) {
    uint64_t state = *(uint64_t *)argument;
    uint64_t made = 0;
    while (nnb_load_relaxed_u32(&stop) == 0) {
        if (made >= nnb_load_relaxed_u64(&allowed)) {
            nnb_pause();
            continue;
        }
        made++;
        uint64_t chance = next_random(&state);
        struct pair *pair = &victims[chance >> 32 & (PAIRS - 1)];
        struct channel *channel = chance >> 40 & 1 ? &pair->requests : &pair->results;
        volatile uint8_t *bytes = channel->data;
        uint64_t where = (chance >> 12 & 0xffff) % (channel->capacity * NNB_DATUM_BYTES);
        uint8_t flip = (uint8_t)(1u << (chance & 7));
        bytes[where] ^= flip;
        if (chance >> 41 & 3) { /* most bytes are themselves again soon, so that most requests are known */
            bytes[where] ^= flip;
        }
        if (nnb_load_relaxed_u32(&words_too) != 0 && (chance >> 43 & 15) == 0) {
            attack_words(channel, next_random(&state));
        }
        for (uint64_t pauses = chance >> 48 & 31; pauses != 0; pauses--) { /* let some packets through whole */
            nnb_pause();
        }
    }
    return NULL;
}

static int32_t execute(nnbx_execution *execution, const struct nnbx_run *run,
                       struct nnbx_outcome *outcome) {
    PROMISE(*(uint32_t *)(void *)execution < NATIVE_KINDS);
    PROMISE(run->deadline_ns == NNBX_NO_DEADLINE && outcome->shape_count == 0);
    native_executions++;
    return NNB_STATUS_NONE;
}

/* Begins anew on the same memory, as after a burst that has ended. The adversary may be faster: then again. */
static void lay_again(struct nnb_ring *ring, const struct channel *channel) {
    int status;
    do {
        nnb_store_relaxed_u64(channel->read_counter, 0);
        nnb_store_relaxed_u64(channel->write_counter, 0);
        status = nnb_ring_init(ring, channel->data, channel->read_counter, channel->write_counter,
                               channel->capacity * NNB_DATUM_BYTES, NNB_DATUM_BYTES, 1);
        PROMISE(status == NNB_RING_OK || status == NNB_RING_CORRUPT);
    } while (status != NNB_RING_OK);
}

static void begin_again(struct pair *pair) {
    struct nnb_client *client = &pair->client.client;
    struct nnb_server *server = &pair->server.server;
    lay_again(&client->requests, &pair->requests);
    lay_again(&client->results, &pair->results);
    lay_again(&server->requests, &pair->requests);
    lay_again(&server->results, &pair->results);
    client->suspended = NULL;
    client->in_flight = client->overdue = 0;
    server->pending = NULL;
    server->lost = 0;
}

static void open_pair(struct pair *pair, uint32_t max_in_flight) {
    static uint32_t kinds[KINDS] = {0, 1, 2, 3, 4, 5};
    pair->max_in_flight = max_in_flight;
    open_channel(&pair->requests, max_in_flight > 1 ? 11 : 5);
    open_channel(&pair->results, max_in_flight > 1 ? 7 : 5);
    open_client(&pair->client, &pair->requests, &pair->results, max_in_flight);
    open_server(&pair->server, &pair->requests, &pair->results, max_in_flight);
    for (uint32_t kind = 0; kind < NATIVE_KINDS; kind++) {
        struct nnb_binding *binding = &pair->server.server.bindings[kind];
        binding->run = execute;
        binding->execution = (nnbx_execution *)(void *)&kinds[kind];
    }
    pair->server.server.idle_ns = 0; /* one look at a time: both ends take turns on this thread */
    pair->server.server.stuck_ns = 50000;
}

static void close_pair(struct pair *pair) {
    close_client(&pair->client);
    close_server(&pair->server);
    close_channel(&pair->requests);
    close_channel(&pair->results);
}

/* Serves what is there; false if the burst has ended. */
static bool serve(struct pair *pair) {
    struct server_end *end = &pair->server;
    uint8_t *reply = NULL;
    uint32_t count = 0;
    for (int step = 0; step < MOST_STEPS; step++) {
        end->server.idle_reported = 0;
        int event = nnb_server_next(&end->server, reply, count, 0, NNBX_MEASURED);
        PROMISE(event >= NNB_SERVER_MISS && event <= NNB_SERVER_LOST && event != NNB_SERVER_ATTENTION);
        events[event]++;
        switch (event) {
        case NNB_SERVER_CALL:
            PROMISE(kind_of_request(end->server.packet, end->server.packet_count) == NATIVE_KINDS);
            reply = answer(end, &count);
            break;
        case NNB_SERVER_MISS:
            PROMISE(end->server.packet_count > 0);
            PROMISE(end->server.packet_count <= pair->requests.capacity);
            reply = answer(end, &count);
            break;
        case NNB_SERVER_IDLE:
            return true;
        default:
            return false;
        }
    }
    return true;
}

static void check_result(const struct pair *pair, const struct nnb_bound *bound) {
    struct nnb_result_summary summary;
    PROMISE(bound->result_count >= 2 && bound->result_count <= pair->results.capacity);
    PROMISE(nnb_result_check(bound->result, bound->result_count, &summary));
}

/* One execution through `pair`; whether the burst can go on. */
static bool execute_once(struct pair *pair, uint32_t kind) {
    struct nnb_bound *bound = &pair->client.bound[kind];
    int status = nnb_client_submit(bound);
    bool alive = true;
    if (status == NNB_CLIENT_RESULT) {
        alive = serve(pair);
        status = nnb_client_collect(bound, alive ? 100000 : 0);
    }
    PROMISE(status >= 0 && status < 16);
    outcomes[status]++;
    switch (status) {
    case NNB_CLIENT_SAME:
    case NNB_CLIENT_SAME_BUT_TIMING:
    case NNB_CLIENT_RESULT:
        check_result(pair, bound);
        return alive;
    case NNB_CLIENT_MALFORMED:
        return alive;
    case NNB_CLIENT_TIMED_OUT:
    case NNB_CLIENT_CORRUPT:
    case NNB_CLIENT_SURPLUS:
    case NNB_CLIENT_NO_ROOM:
        return false;
    default:
        (void)fprintf(stderr, "broken: an execution ended with %d\n", status);
        exit(1);
    }
}

static void check_bystander(uint32_t kind) {
    PROMISE(execute_once(&bystander, kind));
    const struct nnb_bound *bound = &bystander.client.bound[kind];
    PROMISE(kind_of_result(bound->result, bound->result_count) == kind);
}

static void run(uint64_t executions, uint64_t *state) {
    for (uint64_t i = 0; i < executions; i++) {
        struct pair *pair = &victims[i & (PAIRS - 1)];
        (void)nnb_count_u64(&allowed, ATTACKS);
        if (!execute_once(pair, (uint32_t)(next_random(state) % KINDS))) {
            begin_again(pair);
        }
        if (i % 256 == 0) {
            check_bystander((uint32_t)(next_random(state) % KINDS));
            int death = nnb_death_word_watch(death_word, &(nnb_atomic_u32){0}, 1000);
            PROMISE(death == 0 || death == 2);
        }
    }
}

int main(int argc, char **argv) {
    uint64_t executions = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 2 + 1;
    uint64_t seed = next_random(&state);
    pthread_t adversary;
    death_word = exactly(sizeof *death_word);
    open_pair(&victims[0], 1);
    open_pair(&victims[1], 4);
    open_pair(&bystander, 1);
    PROMISE(pthread_create(&adversary, NULL, attack, &seed) == 0);
    run(executions - executions / 10, &state);
    nnb_store_release_u32(&words_too, 1);
    run(executions / 10, &state);
    nnb_store_release_u32(&stop, 1);
    (void)pthread_join(adversary, NULL);
    (void)printf("%" PRIu64 " executions, %" PRIu64 " of them native:", executions, native_executions);
    static const char *const names[] = {"same", "result", "malformed", "timed-out", "interrupted",
                                        "stopped", "corrupt", "surplus", "no-room"};
    for (int i = 0; i <= NNB_CLIENT_NO_ROOM; i++) {
        (void)printf(" %s %" PRIu64, names[i], outcomes[i]);
    }
    (void)printf(" same-but-timing %" PRIu64 "; driver:", outcomes[NNB_CLIENT_SAME_BUT_TIMING]);
    static const char *const endings[] = {"corrupt", "stuck", "lost"};
    for (int i = 0; i < 3; i++) {
        (void)printf(" %s %" PRIu64, endings[i], events[NNB_SERVER_CORRUPT + i]);
    }
    (void)printf("\n");
    PROMISE(native_executions > executions / 4);
    close_pair(&victims[0]);
    close_pair(&victims[1]);
    close_pair(&bystander);
    free(death_word);
    return 0;
}
