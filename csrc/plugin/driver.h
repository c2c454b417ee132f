/* What the plugins of engines share: options that programs give as text, and a driver that is there again after its end. */
#ifndef NNB_PLUGIN_DRIVER_H
#define NNB_PLUGIN_DRIVER_H

#include <nnburst.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Why something was refused: a text for people. */
struct nnb_reason {
    char text[1024];
};

/* Writes a reason; false, for `return nnb_refuse(...)`. */
__attribute__((format(printf, 2, 3))) bool nnb_refuse(struct nnb_reason *reason, const char *format, ...);

/* The same for a call of the client that has failed. */
bool nnb_refuse_failed(struct nnb_reason *reason, const char *what, int code);

/* What a program wants of its driver. */
struct nnb_driver_options {
    char *device;
    char *executor;
    uint64_t timeout_ns;
    uint32_t num_threads;
};

/* The options of a driver, as messages list them. */
#define NNB_DRIVER_OPTIONS "device, executor, timeout_ms or num_threads"

void nnb_driver_options_init(struct nnb_driver_options *options);
void nnb_driver_options_free(struct nnb_driver_options *options);

/* A whole number of an option. */
bool nnb_read_number(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *number,
                     struct nnb_reason *reason);

/* Reads an option. `*known`: whether it is one of a driver's; the caller refuses or reads any other. */
bool nnb_driver_read_option(struct nnb_driver_options *options, const char *name, const char *value, bool *known,
                            struct nnb_reason *reason);

/* A driver process or a service. `recovery` is held for reading by whatever uses the driver, and for writing to connect
 * again. */
struct nnb_driver {
    nnburst_device *device;
    pthread_rwlock_t recovery;
    uint64_t timeout_ns;
    uint32_t num_threads;
};

/* Connects to the service that the options name, or starts a driver with their executor, `executor` without one. */
bool nnb_driver_open(struct nnb_driver *driver, const struct nnb_driver_options *options, const char *executor,
                     struct nnb_reason *reason);

/* Lets go of what nnb_driver_open has made. */
void nnb_driver_close(struct nnb_driver *driver);

/* After the driver's end: connects again, or starts another one, and prepares again. Fails at once if no service is
 * there. A driver that is alive stays as it is. */
bool nnb_driver_recover(struct nnb_driver *driver, struct nnb_reason *reason);

#endif
