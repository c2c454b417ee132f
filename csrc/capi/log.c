#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void line(const char *format, va_list arguments) {
    char text[1024] = "nnburst: ";
    size_t used = strlen(text);
    int more = vsnprintf(text + used, sizeof text - used - 1, format, arguments);
    if (more < 0) {
        return;
    }
    used = strlen(text);
    for (size_t i = 0; i < used; i++) {
        text[i] = text[i] == '\n' ? ' ' : text[i];
    }
    text[used] = '\n';
    (void)!write(STDERR_FILENO, text, used + 1); /* a stderr that is closed is the program's wish */
}

static bool wanted(void) {
    const char *level = secure_getenv("NNBURST_LOG");
    return level != NULL && (strcasecmp(level, "debug") == 0 || strcasecmp(level, "info") == 0);
}

void nnb_log(const char *format, ...) {
    if (!wanted()) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    line(format, arguments);
    va_end(arguments);
}

void nnb_complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line(format, arguments);
    va_end(arguments);
}
