/* Counts by ResultCode what the calls of a test came to. For programs that include nnburst.h. */
#ifndef NNB_TESTS_CODE_COUNTS_H
#define NNB_TESTS_CODE_COUNTS_H

#include <nnburst.h>
#include <stdio.h>

static unsigned long codes[128];

static int count(int code) {
    codes[code >= 0 && code < 128 ? code : 127]++;
    return code;
}

static void print_codes(unsigned long calls) {
    (void)printf("%lu calls:", calls);
    for (int code = 0; code < 128; code++) {
        if (codes[code] != 0) {
            (void)printf(" %s %lu", nnburst_result_name(code), codes[code]);
        }
    }
    (void)printf("\n");
}

#endif
