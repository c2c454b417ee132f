/* What C reads of packets: any bytes are refused or well-formed, and what it writes is well-formed. */
#include "../../packet.h"
#include "input.h"

/* The rules for a result packet, written a second time and as plainly as possible. */
static bool well_formed(const uint8_t *packet, uint32_t count) {
    uint32_t operands;
    uint32_t announced;
    uint32_t index = 1;
    if (count < 2 || packet[0] != NNB_RESULT_PACKET_INFORMATION) {
        return false;
    }
    memcpy(&announced, packet + NNB_RESULT_PACKET_SIZE_OFFSET, sizeof announced);
    memcpy(&operands, packet + NNB_RESULT_NUMBER_OF_OPERANDS_OFFSET, sizeof operands);
    if (announced != count) {
        return false;
    }
    for (uint64_t i = 0; i < operands; i++) {
        uint32_t rank;
        if (index + 1 >= count) { /* the last element is the timing */
            return false;
        }
        const uint8_t *operand = packet + (uint64_t)index++ * NNB_DATUM_BYTES;
        if (operand[0] != NNB_RESULT_OPERAND_INFORMATION || operand[NNB_RESULT_IS_SUFFICIENT_OFFSET] > 1) {
            return false;
        }
        memcpy(&rank, operand + NNB_RESULT_NUMBER_OF_DIMENSIONS_OFFSET, sizeof rank);
        for (uint64_t k = 0; k < rank; k++) {
            if (index + 1 >= count ||
                packet[(uint64_t)index++ * NNB_DATUM_BYTES] != NNB_RESULT_OPERAND_DIMENSION_VALUE) {
                return false;
            }
        }
    }
    return index + 1 == count && packet[(uint64_t)index * NNB_DATUM_BYTES] == NNB_RESULT_EXECUTION_TIMING;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t count = (uint32_t)(size / NNB_DATUM_BYTES);
    if (count == 0 || count > 4096) {
        return 0;
    }
    uint8_t *packet = exactly((size_t)count * NNB_DATUM_BYTES);
    memcpy(packet, data, (size_t)count * NNB_DATUM_BYTES);
    struct nnb_result_summary summary;
    bool accepted = nnb_result_check(packet, count, &summary);
    PROMISE(accepted == well_formed(packet, count));
    (void)nnb_request_measures(packet, count);
    (void)nnb_packet_announced(packet, NNB_REQUEST_PACKET_SIZE_OFFSET);
    if (accepted) {
        uint8_t *before = exactly((size_t)count * NNB_DATUM_BYTES);
        memcpy(before, packet, (size_t)count * NNB_DATUM_BYTES);
        nnb_result_set_timing(packet, count, summary.time_on_device, 1001);
        PROMISE(nnb_result_check(packet, count, &summary) && summary.time_in_driver == 2);
        PROMISE(memcmp(before, packet, (size_t)(count - 1) * NNB_DATUM_BYTES) == 0);
        free(before);
    }
    if (count >= 2) {
        nnb_result_error(packet, NNB_STATUS_GENERAL_FAILURE);
        PROMISE(nnb_result_check(packet, 2, &summary));
        PROMISE(summary.status == NNB_STATUS_GENERAL_FAILURE && summary.time_on_device == NNB_NO_TIMING);
    }
    free(packet);
    return 0;
}
