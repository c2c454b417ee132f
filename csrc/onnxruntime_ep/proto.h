/* Writes protobuf messages. A writer without memory is marked and does nothing more. */
#ifndef NNB_EP_PROTO_H
#define NNB_EP_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nnb_proto {
    uint8_t *data;
    size_t count;
    size_t room;
    bool failed;
};

void nnb_proto_free(struct nnb_proto *proto);

/* Write a field with a number, with bytes, with a string that ends in 0, with a float32. */
void nnb_proto_uint(struct nnb_proto *proto, uint32_t field, uint64_t value);
void nnb_proto_bytes(struct nnb_proto *proto, uint32_t field, const void *bytes, size_t count);
void nnb_proto_text(struct nnb_proto *proto, uint32_t field, const char *text);
void nnb_proto_float(struct nnb_proto *proto, uint32_t field, float value);

/* Write a message as a field: everything between the two calls. `end` takes the result of `begin`. */
size_t nnb_proto_begin(struct nnb_proto *proto, uint32_t field);
void nnb_proto_end(struct nnb_proto *proto, size_t begun);

#endif
