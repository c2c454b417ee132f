#include "bench_interface.h"

#include "clock.h"

static int set_arguments(const struct nnb_bench_interface *interface, void *execution) {
    if (interface->memory == NULL) {
        int code = interface->set_input(execution, 0, NULL, interface->input, interface->bytes);
        return code != 0 ? code
                         : interface->set_output(execution, 0, NULL, interface->output, interface->bytes);
    }
    int code = interface->set_input_from_memory(execution, 0, NULL, interface->memory, 0, interface->bytes);
    return code != 0 ? code
                     : interface->set_output_from_memory(execution, 0, NULL, interface->memory,
                                                         interface->bytes, interface->bytes);
}

/* Make, set two arguments, compute, free. */
static int one_of_its_own(const struct nnb_bench_interface *interface) {
    void *execution = NULL;
    int code = interface->create(interface->compilation, &execution);
    if (code == 0) {
        code = set_arguments(interface, execution);
    }
    if (code == 0) {
        code = interface->burst_compute(execution, interface->burst);
    }
    interface->free(execution);
    return code;
}

uint64_t nnb_bench_interface_run(const struct nnb_bench_interface *interface, uint64_t rounds,
                                 uint64_t *samples_ns) {
    uint64_t began = nnb_now_ns();
    uint64_t before = began;
    for (uint64_t i = 0; i < rounds; i++) {
        int code = interface->execution == NULL
                       ? one_of_its_own(interface)
                       : interface->burst_compute(interface->execution, interface->burst);
        if (code != 0) {
            return 0;
        }
        if (samples_ns != NULL) {
            uint64_t now = nnb_now_ns();
            samples_ns[i] = now - before;
            before = now;
        }
    }
    return nnb_now_ns() - began;
}
