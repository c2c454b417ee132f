/* Runs inputs without a fuzzer: each file named on the command line, then random ones. For the ordinary tests.
 * Usage: replay COUNT FILE... */
#include <stdio.h>

#include "input.h"

static void run_file(const char *name) {
    static uint8_t data[1 << 16];
    FILE *file = fopen(name, "rb");
    PROMISE(file != NULL);
    size_t size = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    uint8_t *exact = exactly(size == 0 ? 1 : size);
    memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    uint64_t state = 88172645463325252u;
    for (int i = 2; i < argc; i++) {
        run_file(argv[i]);
    }
    for (unsigned long i = 0; i < count; i++) {
        uint8_t data[512];
        for (size_t k = 0; k < sizeof data; k++) { /* xorshift64, small values more often */
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            data[k] = (uint8_t)(state >> 32 & (state >> 61 ? 0xff : 0x07));
        }
        (void)LLVMFuzzerTestOneInput(data, (size_t)(state % sizeof data));
    }
    (void)printf("%d files and %lu random inputs\n", argc > 2 ? argc - 2 : 0, count);
    return 0;
}
