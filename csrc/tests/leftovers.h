/* Counts what a process still has: for tests that load and unload a library. */
#ifndef NNB_TESTS_LEFTOVERS_H
#define NNB_TESTS_LEFTOVERS_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

/* Entries of a folder of /proc. */
static int entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return count;
}

/* Whether this process has a child. */
static int children(void) {
    char path[64];
    char line[4096];
    int found = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        found = fgets(line, sizeof line, file) != NULL;
        (void)fclose(file);
    }
    return found;
}

#endif
