/* One deadline for all that a collect or a run waits for: overdue results that come shortly before it leave what is
 * left of it to the wanted one, not all of it again. Built with NNBURST_TRAPS, to send results into each wait. */
#include "../trap.h"
#include "burst_pair.h"

enum { OVERDUE = 3, TRIES = 10 };

static const uint64_t TIMEOUT_NS = 40000000;
static struct nnb_ring answers;
static struct client_end *end;
static uint32_t to_send;

/* Sends one more result, late in a wait. */
static void send_late(const char *name) {
    uint8_t result[RESULT_DATUMS * NNB_DATUM_BYTES];
    struct timespec most = {.tv_nsec = (long)TIMEOUT_NS / 2};
    if (strcmp(name, "wait.looked") != 0 || to_send == 0) {
        return;
    }
    to_send--;
    (void)nanosleep(&most, NULL);
    make_result(result, 0);
    PROMISE(nnb_ring_write(&answers, result, RESULT_DATUMS) == NNB_RING_OK);
    nnb_event_flag_notify(end->client.result_flag, NNB_FMQ_NOT_EMPTY);
}

/* How long the last wait was: of the time for all of them, what the overdue results have left. */
static uint64_t last_wait(void) {
    struct channel requests;
    struct channel results;
    end = exactly(sizeof *end);
    open_channel(&requests, (OVERDUE + 1) * REQUEST_DATUMS);
    open_channel(&results, (OVERDUE + 1) * RESULT_DATUMS);
    lay_ring(&answers, &results);
    open_client(end, &requests, &results, OVERDUE + 1);
    for (uint32_t i = 0; i <= OVERDUE; i++) {
        PROMISE(nnb_client_submit(&end->bound[0]) == NNB_CLIENT_RESULT);
    }
    for (uint32_t i = 0; i < OVERDUE; i++) {
        PROMISE(nnb_client_forsake(&end->client) == NNB_CLIENT_RESULT);
    }
    to_send = OVERDUE;
    PROMISE(nnb_client_collect(&end->bound[0], TIMEOUT_NS) == NNB_CLIENT_TIMED_OUT);
    uint64_t waited = nnb_now_ns() - end->client.waits_from_ns;
    PROMISE(end->client.dropped <= OVERDUE);
    close_client(end);
    free(end);
    close_channel(&requests);
    close_channel(&results);
    return waited;
}

/* How far the deadline of an interrupted run lies behind the one that it was given; its overdue result comes
 * late. */
static uint64_t run_later_than_asked(void) {
    const uint64_t timeout_ns = 10 * TIMEOUT_NS;
    struct channel requests;
    struct channel results;
    end = exactly(sizeof *end);
    open_channel(&requests, 2 * REQUEST_DATUMS);
    open_channel(&results, 2 * RESULT_DATUMS);
    lay_ring(&answers, &results);
    open_client(end, &requests, &results, 1);
    end->bound[0].timeout_ns = 1;
    PROMISE(nnb_client_run(&end->bound[0]) == NNB_CLIENT_TIMED_OUT);
    to_send = 1;
    end->bound[0].timeout_ns = timeout_ns;
    uint64_t began = nnb_now_ns();
    PROMISE(nnb_client_run(&end->bound[0]) == NNB_CLIENT_INTERRUPTED);
    PROMISE(end->client.dropped == 1);
    uint64_t deadline = end->bound[0].deadline_ns;
    PROMISE(deadline >= began + timeout_ns);
    nnb_client_abandon(&end->bound[0]);
    close_client(end);
    free(end);
    close_channel(&requests);
    close_channel(&results);
    return deadline - began - timeout_ns;
}

static bool run_keeps_its_deadline(void) {
    for (int i = 0; i < TRIES; i++) {
        if (run_later_than_asked() < TIMEOUT_NS / 4) {
            return true;
        }
    }
    return false;
}

int main(void) {
    nnb_trap_hook = send_late;
    if (!run_keeps_its_deadline()) {
        (void)fprintf(stderr, "broken: the time that an overdue result took was not counted\n");
        return 1;
    }
    for (int i = 0; i < TRIES; i++) { /* a machine may be busy once, not every time */
        if (last_wait() < TIMEOUT_NS) {
            (void)printf("the time was the time for all\n");
            return 0;
        }
    }
    (void)fprintf(stderr, "broken: an overdue result gave the next one all of the time again\n");
    return 1;
}
