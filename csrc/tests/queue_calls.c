/* The functions for queues of nnburst.h in random order, with whatever arguments, over two ends of one queue after the other.
 * Usage: queue_calls SEED CALLS */
#include <nnburst.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "code_counts.h"
#include "random.h"

enum { CAPACITY = 61, ROOM = CAPACITY * CAPACITY };

static uint64_t state;

static uint64_t any(uint64_t bound) { return next_random(&state) % bound; }

static size_t number(void) {
    static const uint64_t edges[] = {0, 1, CAPACITY - 4, CAPACITY, CAPACITY + 1, UINT32_MAX, INT64_MAX, UINT64_MAX};
    return (size_t)(any(8) != 0 ? any(CAPACITY) : edges[any(sizeof edges / sizeof *edges)]);
}

static uint64_t moment(void) { return any(8) == 0 ? any(20000) : 0; }

static void open_pair(int *sockets, nnburst_queue **writer, nnburst_queue **reader) {
    char name[64];
    nnburst_queue_options options = {.spin_window_ns = any(20000), .flags = (uint32_t)any(8), .low_power = (uint32_t)any(2)};
    bool has_name = any(4) == 0;
    (void)snprintf(name, sizeof name, "/nnburst-calls-%d", (int)getpid());
    size_t size = any(16) == 0 ? number() : 1;
    (void)count(nnburst_create_queue(has_name ? name : NULL, any(16) == 0 ? (uint32_t)any(4) : NNBURST_WRITER, size,
                                     CAPACITY, any(8) == 0 ? NULL : &options, any(8) == 0 ? any(16) : sizeof options,
                                     writer));
    if (*writer == NULL) {
        return;
    }
    if (has_name) {
        (void)count(nnburst_open_queue(name, NNBURST_READER, size, &options, sizeof options, 1000000, reader));
    } else if (count(nnburst_send_queue(sockets[0], *writer)) == NNBURST_NO_ERROR) {
        (void)count(nnburst_receive_queue(sockets[1], NNBURST_READER, size, &options, sizeof options, 1000000, reader));
    }
}

static void call(nnburst_queue *queue) {
    static uint8_t bytes[ROOM];
    nnburst_claim claim;
    size_t length = any(2 * CAPACITY);
    size_t many = number();
    switch (any(13)) {
    case 0:
    case 1:
        /* More than the queue has is refused before a byte is looked at. */
        (void)count(nnburst_write(queue, any(32) == 0 ? NULL : bytes, many, moment()));
        break;
    case 2:
    case 3:
        (void)count(nnburst_read(queue, any(32) == 0 ? NULL : bytes, many, moment()));
        break;
    case 4:
        if (count(nnburst_begin_write(queue, many, moment(), &claim)) == NNBURST_NO_ERROR) {
            memset(claim.first, 1, claim.first_count);
            memset(claim.second, 1, claim.second_count);
            (void)count(nnburst_commit_write(queue, any(4) == 0 ? number() : many));
        }
        break;
    case 5:
        if (count(nnburst_begin_read(queue, many, moment(), &claim)) == NNBURST_NO_ERROR) {
            (void)count(nnburst_commit_read(queue, any(4) == 0 ? number() : many));
        }
        break;
    case 6:
    case 7:
        (void)count(nnburst_send_message(queue, bytes, length, moment()));
        break;
    case 8:
    case 9:
        (void)count(nnburst_receive_message(queue, bytes, &length, moment()));
        break;
    case 10:
        (void)nnburst_queue_fd(queue);
        (void)count(nnburst_arm_queue(queue, many));
        break;
    default:
        (void)nnburst_queue_available(queue);
        (void)nnburst_queue_missed(queue);
        (void)nnburst_queue_peer(queue);
    }
}

int main(int argc, char **argv) {
    int sockets[2];
    if (argc < 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 88172645463325252u;
    uint64_t calls = strtoull(argv[2], NULL, 10);
    for (uint64_t made = 0; made < calls;) {
        nnburst_queue *ends[2] = {NULL, NULL};
        open_pair(sockets, &ends[0], &ends[1]);
        for (uint64_t i = any(400); i != 0 && made < calls; i--, made++) {
            call(any(64) == 0 ? NULL : ends[any(2)]);
        }
        bool first = any(2) == 0;
        nnburst_close_queue(ends[first]);
        call(ends[!first]);
        nnburst_close_queue(ends[!first]);
        made++;
    }
    print_codes(calls);
    return 0;
}
