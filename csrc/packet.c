#include "packet.h"

#include <string.h>

static uint32_t u32_at(const uint8_t *datum, uint32_t offset) {
    uint32_t value;
    memcpy(&value, datum + offset, sizeof value);
    return value;
}

static uint64_t u64_at(const uint8_t *datum, uint32_t offset) {
    uint64_t value;
    memcpy(&value, datum + offset, sizeof value);
    return value;
}

static const uint8_t *datum_at(const uint8_t *packet, uint32_t index) {
    return packet + (uint64_t)index * NNB_DATUM_BYTES;
}

uint32_t nnb_packet_announced(const uint8_t *packet, uint32_t packet_size_offset) {
    return u32_at(packet, packet_size_offset);
}

bool nnb_result_check(const uint8_t *packet, uint32_t count, struct nnb_result_summary *summary) {
    if (count < 2 || packet[0] != NNB_RESULT_PACKET_INFORMATION ||
        u32_at(packet, NNB_RESULT_PACKET_SIZE_OFFSET) != count) {
        return false; /* D1, D2 */
    }
    uint32_t operands = u32_at(packet, NNB_RESULT_NUMBER_OF_OPERANDS_OFFSET);
    uint32_t left = count - 2; /* elements for operands and their dimensions */
    uint32_t index = 1;
    for (uint32_t i = 0; i < operands; i++) {
        if (left == 0 || *datum_at(packet, index) != NNB_RESULT_OPERAND_INFORMATION) {
            return false; /* D3 */
        }
        if (datum_at(packet, index)[NNB_RESULT_IS_SUFFICIENT_OFFSET] > 1) {
            return false; /* D3: a boolean is 0 or 1 */
        }
        uint32_t rank = u32_at(datum_at(packet, index), NNB_RESULT_NUMBER_OF_DIMENSIONS_OFFSET);
        index++;
        left--;
        if (rank > left) {
            return false; /* D4, before anything is read */
        }
        for (uint32_t k = 0; k < rank; k++) {
            if (*datum_at(packet, index + k) != NNB_RESULT_OPERAND_DIMENSION_VALUE) {
                return false; /* D4 */
            }
        }
        index += rank;
        left -= rank;
    }
    const uint8_t *timing = datum_at(packet, index);
    if (left != 0 || *timing != NNB_RESULT_EXECUTION_TIMING) {
        return false; /* D7, D8 */
    }
    summary->status = nnb_result_status(packet);
    summary->time_on_device = u64_at(timing, NNB_RESULT_TIME_ON_DEVICE_OFFSET);
    summary->time_in_driver = u64_at(timing, NNB_RESULT_TIME_IN_DRIVER_OFFSET);
    return true;
}

bool nnb_request_measures(const uint8_t *packet, uint32_t count) {
    const uint8_t *last = datum_at(packet, count - 1);
    return *last == NNB_REQUEST_MEASURE_TIMING &&
           u32_at(last, NNB_REQUEST_VALUE_OFFSET) == NNB_MEASURE_YES;
}

int32_t nnb_result_status(const uint8_t *packet) {
    int32_t status;
    memcpy(&status, packet + NNB_RESULT_ERROR_STATUS_OFFSET, sizeof status);
    return status;
}

void nnb_times_settle(uint64_t *device_ns, uint64_t *driver_ns, uint64_t measured_ns) {
    if (*driver_ns != NNBX_NOT_AVAILABLE && *driver_ns > measured_ns) { /* NNBX_MEASURED among them */
        *driver_ns = measured_ns;
    }
    uint64_t most = *driver_ns < measured_ns ? *driver_ns : measured_ns;
    if (*device_ns != NNBX_NOT_AVAILABLE && *device_ns > most) {
        *device_ns = most;
    }
}

static uint64_t in_microseconds(uint64_t nanoseconds) {
    return nanoseconds == NNBX_NOT_AVAILABLE ? NNB_NO_TIMING : (nanoseconds + 999) / 1000;
}

void nnb_result_set_timing(uint8_t *packet, uint32_t count, uint64_t device_ns, uint64_t driver_ns) {
    uint8_t *timing = packet + (uint64_t)(count - 1) * NNB_DATUM_BYTES;
    uint64_t device = in_microseconds(device_ns);
    uint64_t driver = in_microseconds(driver_ns);
    memcpy(timing + NNB_RESULT_TIME_ON_DEVICE_OFFSET, &device, sizeof device);
    memcpy(timing + NNB_RESULT_TIME_IN_DRIVER_OFFSET, &driver, sizeof driver);
}

uint32_t nnb_result_write(uint8_t *packet, uint64_t room, int32_t status,
                          const struct nnbx_output_shape *shapes, uint32_t shape_count) {
    uint64_t size = 2 + (uint64_t)shape_count;
    for (uint32_t i = 0; i < shape_count; i++) {
        size += shapes[i].rank;
    }
    if (size > room || size > UINT32_MAX) {
        return 0;
    }
    const uint64_t none = NNB_NO_TIMING;
    const uint32_t count = (uint32_t)size;
    memset(packet, 0, size * NNB_DATUM_BYTES);
    packet[0] = NNB_RESULT_PACKET_INFORMATION;
    memcpy(packet + NNB_RESULT_PACKET_SIZE_OFFSET, &count, sizeof count);
    memcpy(packet + NNB_RESULT_ERROR_STATUS_OFFSET, &status, sizeof status);
    memcpy(packet + NNB_RESULT_NUMBER_OF_OPERANDS_OFFSET, &shape_count, sizeof shape_count);
    uint8_t *datum = packet + NNB_DATUM_BYTES;
    for (uint32_t i = 0; i < shape_count; i++) {
        const struct nnbx_output_shape *shape = &shapes[i];
        datum[0] = NNB_RESULT_OPERAND_INFORMATION;
        datum[NNB_RESULT_IS_SUFFICIENT_OFFSET] = shape->is_sufficient != 0;
        memcpy(datum + NNB_RESULT_NUMBER_OF_DIMENSIONS_OFFSET, &shape->rank, sizeof shape->rank);
        datum += NNB_DATUM_BYTES;
        for (uint32_t axis = 0; axis < shape->rank; axis++) {
            datum[0] = NNB_RESULT_OPERAND_DIMENSION_VALUE;
            memcpy(datum + NNB_RESULT_VALUE_OFFSET, &shape->dimensions[axis], sizeof shape->dimensions[axis]);
            datum += NNB_DATUM_BYTES;
        }
    }
    datum[0] = NNB_RESULT_EXECUTION_TIMING;
    memcpy(datum + NNB_RESULT_TIME_ON_DEVICE_OFFSET, &none, sizeof none);
    memcpy(datum + NNB_RESULT_TIME_IN_DRIVER_OFFSET, &none, sizeof none);
    return count;
}

void nnb_result_error(uint8_t *packet, int32_t status) {
    (void)nnb_result_write(packet, 2, status, NULL, 0);
}
