/* Reads and writes result packets. Layouts come from wire.h; all functions work on private copies. */
#ifndef NNB_PACKET_H
#define NNB_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include <nnburst/executor.h>

#include "wire.h"

struct nnb_result_summary {
    int32_t status;          /* errorStatus as sent */
    uint64_t time_on_device; /* microseconds; NNB_NO_TIMING if not measured */
    uint64_t time_in_driver;
};

/* The number of elements that a packet's first element announces. */
uint32_t nnb_packet_announced(const uint8_t *packet, uint32_t packet_size_offset);

/* Checks a result packet of `count` elements against burst:D1 to D8, and reads the parts of fixed length.
 * False if the packet is malformed. */
bool nnb_result_check(const uint8_t *packet, uint32_t count, struct nnb_result_summary *summary);

/* Whether a request packet of `count` elements asks for timing: its last element has the flag. */
bool nnb_request_measures(const uint8_t *packet, uint32_t count);

/* The status of a well-formed result packet. */
int32_t nnb_result_status(const uint8_t *packet);

/* Computes the reported times of an execution from the executor's times (struct nnbx_outcome) and the
 * measured ones. No time exceeds the measured one, and the device's never exceeds the driver's. */
void nnb_times_settle(uint64_t *device_ns, uint64_t *driver_ns, uint64_t measured_ns);

/* Overwrites the timing of a well-formed result packet; durations in nanoseconds are rounded up to
 * microseconds (NNAPI: canonical to HIDL), and NNBX_NOT_AVAILABLE stays what it is. */
void nnb_result_set_timing(uint8_t *packet, uint32_t count, uint64_t device_ns, uint64_t driver_ns);

/* Writes a result packet without timing; returns the number of elements, or 0 if there are more than `room`.
 * */
uint32_t nnb_result_write(uint8_t *packet, uint64_t room, int32_t status,
                          const struct nnbx_output_shape *shapes, uint32_t shape_count);

/* Writes the two-element packet {2, status, 0 operands}, {no timing, no timing}. */
void nnb_result_error(uint8_t *packet, int32_t status);

#endif
