/* Runs a network from an event loop: poll(2) sleeps on the burst's descriptor, and on that of the driver's process.
 *
 *     gcc event_loop.c $(nnburst capi --client --cflags --libs) -o event_loop && ./event_loop camera pose 100 */
#include <nnburst.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND 1000000000ull

static int fail(int code) {
    fprintf(stderr, "%s: %s\n", nnburst_result_name(code), nnburst_error_message());
    return 1;
}

int main(int argc, char **argv) {
    nnburst_device *device;
    nnburst_model *model;
    nnburst_burst *burst;
    nnburst_request *request;
    int code;
    int done = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: %s SERVICE NETWORK TIMES\n", argv[0]);
        return 2;
    }
    if ((code = nnburst_connect(argv[1], 0, 10 * SECOND, &device)) != NNBURST_NO_ERROR ||
        (code = nnburst_open_model(device, argv[2], 0, 10 * SECOND, &model)) != NNBURST_NO_ERROR ||
        (code = nnburst_open_burst(model, NULL, 0, SECOND, &burst)) != NNBURST_NO_ERROR ||
        (code = nnburst_create_request(burst, &request)) != NNBURST_NO_ERROR ||
        (code = nnburst_bind(request)) != NNBURST_NO_ERROR) {
        return fail(code);
    }
    while (done < atoi(argv[3])) {
        struct pollfd watched[2] = {
            {.fd = nnburst_burst_fd(burst), .events = POLLIN},
            {.fd = nnburst_device_fd(device), .events = POLLIN},
        };
        nnburst_request *finished;
        if ((code = nnburst_submit(request)) != NNBURST_NO_ERROR) {
            return fail(code);
        }
        while ((code = nnburst_poll(burst)) == NNBURST_INCOMPLETE) {
            (void)poll(watched, 2, 1000); /* where a program does its other work */
        }
        if (code != NNBURST_NO_ERROR ||
            (code = nnburst_collect(burst, 0, &finished)) != NNBURST_NO_ERROR) {
            return fail(code);
        }
        done++;
    }
    printf("%d results\n", done);
    nnburst_close_device(device);
    return 0;
}
