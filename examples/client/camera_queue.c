/* Hands the headers of a camera's frames to a program in Python, through a message queue with a name.
 *
 *     gcc camera_queue.c $(nnburst capi --client --cflags --libs) -o camera_queue
 *     python camera_reader.py /camera & ./camera_queue /camera 100 */
#include <nnburst.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND 1000000000ull

/* As camera_reader.py has it: without gaps. */
struct header {
    uint64_t frame;
    uint16_t width;
    uint16_t height;
    uint32_t format;
    double seconds;
};

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s NAME FRAMES\n", argv[0]);
        return 2;
    }
    nnburst_queue *queue;
    int code = nnburst_open_queue(argv[1], NNBURST_WRITER, sizeof(struct header), NULL, 0, 30 * SECOND, &queue);
    if (code != NNBURST_NO_ERROR) {
        fprintf(stderr, "%s: %s\n", nnburst_result_name(code), nnburst_error_message());
        return 1;
    }
    struct header header = {.width = 640, .height = 480};
    for (uint64_t frame = 0; code == NNBURST_NO_ERROR && frame < strtoull(argv[2], NULL, 10); frame++) {
        header.frame = frame;
        header.seconds = (double)frame / 50;
        code = nnburst_write(queue, &header, 1, 30 * SECOND);
    }
    nnburst_close_queue(queue);
    if (code != NNBURST_NO_ERROR) {
        fprintf(stderr, "%s\n", nnburst_result_name(code));
    }
    return code == NNBURST_NO_ERROR ? 0 : 1;
}
