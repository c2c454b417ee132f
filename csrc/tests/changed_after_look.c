/* The first element of a packet, whose size gives the end of the packet, is copied once: a peer that changes it in the
 * ring after that changes nothing. Built with NNBURST_TRAPS, to change it at the worst moment. */
#include "../trap.h"
#include "burst_pair.h"

static uint8_t *first; /* element in the ring */
static uint32_t changed;

static void change(const char *name) {
    if (strcmp(name, "burst.cut") == 0) {
        memset(first, 0xFF, NNB_DATUM_BYTES);
        changed++;
    }
}

int main(void) {
    static struct client_end client;
    static struct server_end server;
    struct channel requests;
    struct channel results;
    uint32_t count;
    open_channel(&requests, 2 * REQUEST_DATUMS);
    open_channel(&results, 2 * RESULT_DATUMS);
    open_client(&client, &requests, &results, 2);
    open_server(&server, &requests, &results, 2);
    nnb_trap_hook = change;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t kind = KINDS - 1; /* one that the server hands to its caller */
        PROMISE(nnb_client_submit(&client.bound[kind]) == NNB_CLIENT_RESULT);
        first = requests.data + i * REQUEST_DATUMS * NNB_DATUM_BYTES;
        PROMISE(nnb_server_next(&server.server, NULL, 0, 0, NNBX_MEASURED) == NNB_SERVER_MISS);
        PROMISE(changed == 2 * i + 1);
        PROMISE(kind_of_request(server.server.packet, server.server.packet_count) == kind);
        uint8_t *reply = answer(&server, &count);
        server.server.idle_ns = 1; /* nothing more comes */
        PROMISE(nnb_server_next(&server.server, reply, count, 0, NNBX_MEASURED) == NNB_SERVER_IDLE);
        first = results.data + i * RESULT_DATUMS * NNB_DATUM_BYTES;
        PROMISE(nnb_client_collect(&client.bound[kind], 1000000000u) ==
                (i == 0 ? NNB_CLIENT_RESULT : NNB_CLIENT_SAME_BUT_TIMING));
        PROMISE(changed == 2 * i + 2);
        PROMISE(kind_of_result(client.bound[kind].result, client.bound[kind].result_count) == kind);
    }
    (void)printf("%" PRIu32 " changes changed nothing\n", changed);
    close_client(&client);
    close_server(&server);
    close_channel(&requests);
    close_channel(&results);
    return 0;
}
