#include "plugin/driver.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define MILLISECOND 1000000u
#define DEFAULT_TIMEOUT_MS 60000u

enum { MOST_THREADS = 1024 };

bool nnb_refuse(struct nnb_reason *reason, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason->text, sizeof reason->text, format, arguments);
    va_end(arguments);
    return false;
}

bool nnb_refuse_failed(struct nnb_reason *reason, const char *what, int code) {
    return nnb_refuse(reason, "nnburst: %s: %s: %s", what, nnburst_result_name(code), nnburst_error_message());
}

void nnb_driver_options_init(struct nnb_driver_options *options) {
    *options = (struct nnb_driver_options){.timeout_ns = (uint64_t)DEFAULT_TIMEOUT_MS * MILLISECOND};
}

void nnb_driver_options_free(struct nnb_driver_options *options) {
    free(options->device);
    free(options->executor);
    *options = (struct nnb_driver_options){0};
}

bool nnb_read_number(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *number,
                     struct nnb_reason *reason) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < least || value > most) {
        return nnb_refuse(reason, "nnburst: %s: '%.64s', expected a number from %llu to %llu", name, text,
                          (unsigned long long)least, (unsigned long long)most);
    }
    *number = value;
    return true;
}

bool nnb_driver_read_option(struct nnb_driver_options *options, const char *name, const char *value, bool *known,
                            struct nnb_reason *reason) {
    uint64_t number = 0;
    *known = true;
    if (strcmp(name, "device") == 0 || strcmp(name, "executor") == 0) {
        char **text = name[0] == 'd' ? &options->device : &options->executor;
        free(*text);
        *text = strdup(value);
        return *text != NULL || nnb_refuse(reason, "nnburst: memory is short");
    }
    if (strcmp(name, "timeout_ms") == 0) {
        bool read = nnb_read_number(name, value, 1, UINT32_MAX, &number, reason);
        options->timeout_ns = number * MILLISECOND;
        return read;
    }
    if (strcmp(name, "num_threads") == 0) {
        bool read = nnb_read_number(name, value, 0, MOST_THREADS, &number, reason);
        options->num_threads = (uint32_t)number;
        return read;
    }
    *known = false;
    return true;
}

bool nnb_driver_open(struct nnb_driver *driver, const struct nnb_driver_options *options, const char *executor,
                     struct nnb_reason *reason) {
    if (options->device != NULL && options->executor != NULL) {
        return nnb_refuse(reason, "nnburst: device and executor: a service has its executor, expected one of both");
    }
    int code = options->device != NULL
                   ? nnburst_connect(options->device, 0, options->timeout_ns, &driver->device)
                   : nnburst_launch(options->executor != NULL ? options->executor : executor, 0, options->timeout_ns,
                                    &driver->device);
    if (code != NNBURST_NO_ERROR) {
        return nnb_refuse_failed(reason, "no driver", code);
    }
    driver->timeout_ns = options->timeout_ns;
    driver->num_threads = options->num_threads;
    (void)pthread_rwlock_init(&driver->recovery, NULL);
    return true;
}

void nnb_driver_close(struct nnb_driver *driver) {
    nnburst_close_device(driver->device);
    (void)pthread_rwlock_destroy(&driver->recovery);
}

bool nnb_driver_recover(struct nnb_driver *driver, struct nnb_reason *reason) {
    if (nnburst_is_alive(driver->device)) {
        return true;
    }
    int code = nnb_check_ours(driver->device); /* in a forked child the driver is not dead, and the lock may be held */
    if (code != NNBURST_NO_ERROR) {
        return nnb_refuse_failed(reason, "the driver cannot be used", code);
    }
    (void)pthread_rwlock_wrlock(&driver->recovery);
    if (!nnburst_is_alive(driver->device)) { /* another thread may have been quicker */
        /* A program that runs a network asks again when it likes; it shall not wait for a service that is gone. */
        code = nnb_reconnect(driver->device, false, driver->timeout_ns);
    }
    (void)pthread_rwlock_unlock(&driver->recovery);
    return code == NNBURST_NO_ERROR ||
           nnb_refuse_failed(reason, "the driver has died and is not there again", code);
}
