/* A stop that falls between a waiter's last look and its sleep is not taken away by the other side, which clears
 * its own bits of the same word at that moment. Built with NNBURST_TRAPS, which stop the clock there. */
#include "../trap.h"
#include "burst_pair.h"

static struct client_end *end;

static void stop_and_clear(const char *name) {
    if (strcmp(name, "wait.looked") == 0) {
        nnb_client_stop(&end->client);
        /* What the driver does before it waits for room. */
        (void)nnb_event_flag_prepare(end->client.result_flag, NNB_FMQ_NOT_FULL | NNB_FMQ_WRITER_ATTENTION);
    }
}

int main(void) {
    struct channel requests;
    struct channel results;
    end = exactly(sizeof *end);
    open_channel(&requests, 5);
    open_channel(&results, 5);
    open_client(end, &requests, &results, 1);
    nnb_trap_hook = stop_and_clear;
    PROMISE(nnb_client_run(&end->bound[0]) == NNB_CLIENT_STOPPED); /* not INTERRUPTED, a slice later */
    close_client(end);
    free(end);
    close_channel(&requests);
    close_channel(&results);
    (void)printf("the stop was seen\n");
    return 0;
}
