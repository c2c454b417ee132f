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

void nnb_result_set_timing(uint8_t *packet, uint32_t count, uint64_t device_ns, uint64_t driver_ns) {
    uint8_t *timing = packet + (uint64_t)(count - 1) * NNB_DATUM_BYTES;
    uint64_t device = (device_ns + 999) / 1000;
    uint64_t driver = (driver_ns + 999) / 1000;
    memcpy(timing + NNB_RESULT_TIME_ON_DEVICE_OFFSET, &device, sizeof device);
    memcpy(timing + NNB_RESULT_TIME_IN_DRIVER_OFFSET, &driver, sizeof driver);
}

void nnb_result_error(uint8_t *packet, int32_t status) {
    const uint32_t size = 2;
    const uint64_t none = NNB_NO_TIMING;
    memset(packet, 0, size * NNB_DATUM_BYTES);
    packet[0] = NNB_RESULT_PACKET_INFORMATION;
    memcpy(packet + NNB_RESULT_PACKET_SIZE_OFFSET, &size, sizeof size);
    memcpy(packet + NNB_RESULT_ERROR_STATUS_OFFSET, &status, sizeof status);
    uint8_t *timing = packet + NNB_DATUM_BYTES;
    timing[0] = NNB_RESULT_EXECUTION_TIMING;
    memcpy(timing + NNB_RESULT_TIME_ON_DEVICE_OFFSET, &none, sizeof none);
    memcpy(timing + NNB_RESULT_TIME_IN_DRIVER_OFFSET, &none, sizeof none);
}
