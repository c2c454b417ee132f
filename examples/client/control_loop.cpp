// A control loop that runs a network in each tick, as a node of a robot does: it keeps its period when the driver dies,
// connects again meanwhile, and prints how late its ticks were.
//
//     g++ control_loop.cpp $(nnburst capi --client --cflags --libs) -o control_loop
//     ./control_loop camera pose 1000        1,000 ticks of a millisecond
//
// As root, or with CAP_SYS_NICE, it runs under SCHED_FIFO.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nnburst.hpp>
#include <sched.h>
#include <vector>

namespace {

const long kPeriod = 1000000; // nanoseconds

void add(timespec &moment, long nanoseconds) {
    moment.tv_nsec += nanoseconds;
    while (moment.tv_nsec >= 1000000000) {
        moment.tv_nsec -= 1000000000;
        moment.tv_sec++;
    }
}

double microseconds_since(const timespec &moment) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - moment.tv_sec) * 1e6 + (now.tv_nsec - moment.tv_nsec) * 1e-3;
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: %s SERVICE NETWORK TICKS\n", argv[0]);
        return 2;
    }
    const int ticks = std::atoi(argv[3]);
    try {
        nnburst::Device device(argv[1]);
        nnburst::Model model(device, argv[2]);
        nnburst::Burst burst(model);
        nnburst::Request request(burst);
        request.bind();
        request.run(); // the first one binds it in the driver, too

        sched_param priority = {};
        priority.sched_priority = 50;
        const bool real_time = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;

        std::vector<double> late;
        late.reserve(static_cast<std::size_t>(ticks));
        int missed = 0;
        timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next);
        for (int tick = 0; tick < ticks; tick++) {
            add(next, kPeriod);
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
            late.push_back(microseconds_since(next));
            const int code = request.try_run(std::chrono::nanoseconds(kPeriod));
            if (code == NNBURST_DEAD_OBJECT) {
                device.reconnect(); // a tick or two late; pointers and states stay as they were
                clock_gettime(CLOCK_MONOTONIC, &next);
            }
            missed += code != NNBURST_NO_ERROR;
        }
        std::sort(late.begin(), late.end());
        std::printf("%d ticks, %d without a result; %s; late by %.1f us (median), %.1f us (99.9 %%), %.1f us (most)\n",
                    ticks, missed, real_time ? "SCHED_FIFO" : "no real-time priority", late[late.size() / 2],
                    late[late.size() * 999 / 1000], late.back());
    } catch (const nnburst::Error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
