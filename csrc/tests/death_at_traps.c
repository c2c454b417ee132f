/* Either side of a burst dies at each named point of csrc/trap.h, at its first, second, ... time there. The
 * survivor sees whole packets or none, and ends with the news of the death or at its deadline.
 * Built with NNBURST_TRAPS. Usage: death_at_traps TIMES */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../liveness.h"
#include "../trap.h"
#include "burst_pair.h"

enum { PATIENCE_NS = 5000000, LAST_RESORT_S = 60 };

static const char *const points[] = {"ring.write.claimed",   "ring.write.half",  "ring.write.copied",
                                     "ring.write.committed", "ring.read.copied", "ring.read.released"};

/* One scene: who dies where, and how the other learns of it. */
struct scene {
    const char *point;
    uint32_t time;
    uint32_t max_in_flight;
    bool driver_dies;
    bool told; /* by the death word; else only the deadline */
};

struct stage {
    struct channel requests;
    struct channel results;
    nnb_atomic_u32 *death_word;
    nnb_atomic_u32 unwatched;
    struct client_end client;
    struct server_end server;
};

static struct stage stage;
static struct scene scene;
static pid_t victim; /* 0 in itself */
static uint64_t whole; /* packets that survivors took, all whole */

static void *shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PROMISE(memory != MAP_FAILED);
    return memory;
}

static void share_channel(struct channel *channel, uint64_t capacity) {
    uint8_t *memory = shared(4096);
    *channel = (struct channel){.capacity = capacity,
                                .read_counter = (nnb_atomic_u64 *)(void *)memory,
                                .write_counter = (nnb_atomic_u64 *)(void *)(memory + 64),
                                .flag = (nnb_atomic_u32 *)(void *)(memory + 128),
                                .data = memory + 192};
}

static void die_there(const char *name) {
    static uint32_t passed;
    if (strcmp(name, scene.point) == 0 && ++passed == scene.time) {
        (void)raise(SIGKILL);
    }
}

/* Whether the deadline that has just passed was the last: the victim has died. */
static bool is_over(void) {
    siginfo_t info = {0};
    return victim != 0 && waitid(P_PID, (id_t)victim, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == victim;
}

/* Submits, or collects, until that has an outcome, the news come, or a deadline passes after the death. */
static int insist(struct nnb_bound *bound, bool submits) {
    for (;;) {
        bool was_over = is_over();
        int status = submits ? nnb_client_submit(bound) : nnb_client_collect(bound, PATIENCE_NS);
        bool waits = status == NNB_CLIENT_TIMED_OUT || status == NNB_CLIENT_INTERRUPTED ||
                     status == NNB_CLIENT_NO_ROOM;
        if (!waits || was_over) {
            return status;
        }
        if (submits) {
            (void)usleep(100);
        }
    }
}

static bool is_result(int status) {
    return status == NNB_CLIENT_SAME || status == NNB_CLIENT_SAME_BUT_TIMING ||
           status == NNB_CLIENT_RESULT;
}

/* Executes until it is stopped, or gets no answer. */
static int be_client(struct client_end *end) {
    const uint32_t out = end->client.max_in_flight > 1 ? 2 : 1;
    for (uint32_t first = 0;; first = (first + out) % KINDS) {
        for (uint32_t i = 0; i < out; i++) {
            int status = insist(&end->bound[first + i], true);
            if (status != NNB_CLIENT_RESULT) {
                return status;
            }
        }
        for (uint32_t i = 0; i < out; i++) {
            struct nnb_bound *bound = &end->bound[first + i];
            int status = insist(bound, false);
            if (!is_result(status)) {
                return status;
            }
            PROMISE(kind_of_result(bound->result, bound->result_count) == first + i);
            whole++;
        }
    }
}

/* Serves until it is stopped, or nothing comes any more. */
static int be_driver(struct server_end *end) {
    uint8_t *reply = NULL;
    uint32_t count = 0;
    for (;;) {
        bool was_over = is_over();
        end->server.idle_reported = 0;
        int event = nnb_server_next(&end->server, reply, count, 0, NNBX_MEASURED);
        reply = NULL;
        if (event == NNB_SERVER_CALL || event == NNB_SERVER_MISS) {
            PROMISE(kind_of_request(end->server.packet, end->server.packet_count) < KINDS);
            reply = answer(end, &count);
        } else if ((event != NNB_SERVER_IDLE && event != NNB_SERVER_STUCK) || was_over) {
            whole += end->server.executions;
            return event;
        }
    }
}

static void *watch(void *argument) {
    (void)argument;
    if (nnb_death_word_watch(stage.death_word, &stage.unwatched, LAST_RESORT_S * 1000000000ull) == 0) {
        if (scene.driver_dies) {
            nnb_client_stop(&stage.client.client);
        } else {
            nnb_server_call(&stage.server.server);
        }
    }
    return NULL;
}

static void die(int told[2]) {
    uint32_t found;
    int failed;
    (void)alarm(LAST_RESORT_S);
    nnb_trap_hook = die_there;
    PROMISE(!scene.told || nnb_death_word_take(stage.death_word, 0, &found, &failed) != NULL);
    PROMISE(write(told[1], "", 1) == 1); /* the word is held: now it can be watched */
    int outcome = scene.driver_dies ? be_driver(&stage.server) : be_client(&stage.client);
    (void)fprintf(stderr, "broken: came through with %d\n", outcome);
    _exit(1);
}

static void survive(void) {
    pthread_t watcher;
    if (scene.told) {
        PROMISE(pthread_create(&watcher, NULL, watch, NULL) == 0);
    }
    int outcome = scene.driver_dies ? be_client(&stage.client) : be_driver(&stage.server);
    if (scene.driver_dies) {
        /* A dead driver empties no ring, so it may also be full. */
        PROMISE(outcome == NNB_CLIENT_STOPPED || outcome == NNB_CLIENT_TIMED_OUT ||
                outcome == NNB_CLIENT_NO_ROOM);
    } else {
        PROMISE(outcome == NNB_SERVER_ATTENTION || outcome == NNB_SERVER_IDLE ||
                outcome == NNB_SERVER_STUCK);
    }
    /* What lies in the ring now is whole packets, too: none was published in part. */
    struct nnb_ring *inbound =
        scene.driver_dies ? &stage.client.client.results : &stage.server.server.requests;
    PROMISE(nnb_ring_available_to_read(inbound) %
                (scene.driver_dies ? RESULT_DATUMS : REQUEST_DATUMS) == 0);
    PROMISE(!inbound->corrupted);
    nnb_store_release_u32(&stage.unwatched, 1);
    if (scene.told) {
        nnb_death_word_release(stage.death_word, &stage.unwatched);
        (void)pthread_join(watcher, NULL);
    }
}

static void play(void) {
    int told[2];
    char byte;
    int status;
    memset(&stage, 0, sizeof stage);
    stage.death_word = shared(4096);
    share_channel(&stage.requests, scene.max_in_flight > 1 ? 11 : 5);
    share_channel(&stage.results, scene.max_in_flight > 1 ? 11 : 5);
    open_client(&stage.client, &stage.requests, &stage.results, scene.max_in_flight);
    open_server(&stage.server, &stage.requests, &stage.results, scene.max_in_flight);
    stage.server.server.idle_ns = scene.told ? (uint64_t)LAST_RESORT_S * 1000000000u : PATIENCE_NS;
    stage.server.server.stuck_ns = PATIENCE_NS;
    PROMISE(pipe(told) == 0);
    victim = 0;
    pid_t child = fork();
    PROMISE(child >= 0);
    if (child == 0) {
        die(told);
    }
    victim = child;
    PROMISE(read(told[0], &byte, 1) == 1);
    survive();
    PROMISE(waitpid(victim, &status, 0) == victim);
    PROMISE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)close(told[0]);
    (void)close(told[1]);
    close_client(&stage.client);
    close_server(&stage.server);
    (void)munmap(stage.death_word, 4096);
    (void)munmap((void *)stage.requests.read_counter, 4096);
    (void)munmap((void *)stage.results.read_counter, 4096);
}

/* Whether the kernel sets death words. An emulator in user mode refuses both calls about robust lists. */
static bool has_robust_lists(void) {
    void *head = NULL;
    size_t size = 0;
    return syscall(SYS_get_robust_list, 0, &head, &size) == 0;
}

int main(int argc, char **argv) {
    if (!has_robust_lists()) {
        (void)printf("skipped: set_robust_list is refused here\n");
        return 77;
    }
    uint32_t times = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4;
    uint32_t deaths = 0;
    (void)alarm(LAST_RESORT_S + times * 60);
    for (size_t point = 0; point < sizeof points / sizeof points[0]; point++) {
        for (uint32_t time = 1; time <= times; time++) {
            for (uint32_t how = 0; how < 8; how++) {
                scene = (struct scene){.point = points[point],
                                       .time = time,
                                       .max_in_flight = how & 1 ? 4 : 1,
                                       .driver_dies = (how & 2) != 0,
                                       .told = (how & 4) != 0};
                play();
                deaths++;
            }
        }
    }
    (void)printf("%" PRIu32 " deaths at %zu points, %" PRIu64 " packets taken by survivors, all whole\n",
                 deaths, sizeof points / sizeof points[0], whole);
    return 0;
}
