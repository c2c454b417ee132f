/* Lists what a service serves, opens a network, runs it once on zeros and prints what came out.
 *
 *     nnburst serve camera --executor litert --model pose=pose.tflite
 *
 * In another terminal, once the service listens:
 *
 *     gcc first_run.c $(nnburst capi --client --cflags --libs) -o first_run && ./first_run camera pose */
#include <inttypes.h>
#include <nnburst.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND 1000000000u

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        int code_ = (call);                                                                          \
        if (code_ != NNBURST_NO_ERROR) {                                                             \
            fprintf(stderr, "%s: %s\n", nnburst_result_name(code_), nnburst_error_message());        \
            return 1;                                                                                \
        }                                                                                            \
    } while (0)

static void print_operand(const char *kind, const nnburst_operand *operand) {
    printf("%s %s:", kind, operand->name[0] != '\0' ? operand->name : "without a name");
    for (uint32_t i = 0; i < operand->rank; i++) {
        printf(" %" PRIu32, operand->dimensions[i]);
    }
    printf(" (%" PRIu64 " bytes)\n", operand->size);
}

int main(int argc, char **argv) {
    nnburst_device *device;
    nnburst_models *models;
    nnburst_model *model;
    nnburst_burst *burst;
    nnburst_request *request;
    nnburst_operand operand;
    uint64_t on_device;
    uint64_t in_driver;
    if (argc < 3) {
        fprintf(stderr, "usage: %s SERVICE NETWORK\n", argv[0]);
        return 2;
    }
    CHECK(nnburst_connect(argv[1], 0, 10 * (uint64_t)SECOND, &device));
    CHECK(nnburst_list_models(device, SECOND, &models));
    for (uint32_t i = 0; i < nnburst_models_count(models); i++) {
        printf("served: %s version %" PRIu32 "\n", nnburst_models_name(models, i),
               nnburst_models_version(models, i));
    }
    nnburst_free_models(models);

    CHECK(nnburst_open_model(device, argv[2], 0, 10 * (uint64_t)SECOND, &model));
    for (uint32_t i = 0; i < nnburst_input_count(model); i++) {
        CHECK(nnburst_input(model, i, &operand, sizeof operand));
        print_operand("input", &operand);
    }
    for (uint32_t i = 0; i < nnburst_output_count(model); i++) {
        CHECK(nnburst_output(model, i, &operand, sizeof operand));
        print_operand("output", &operand);
    }

    CHECK(nnburst_open_burst(model, NULL, 0, SECOND, &burst));
    CHECK(nnburst_create_request(burst, &request));
    CHECK(nnburst_set_measure(request, 1));
    CHECK(nnburst_bind(request)); /* memory of its own for every input and output, zeroed */
    CHECK(nnburst_run(request, SECOND));
    CHECK(nnburst_timing(request, &on_device, &in_driver));
    printf("ran: first byte %u, measured: %s\n", *(const unsigned char *)nnburst_output_data(request, 0),
           on_device <= in_driver ? "yes" : "no");
    nnburst_close_device(device); /* and all that was opened from it */
    return 0;
}
