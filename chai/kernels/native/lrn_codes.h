/* LRN of codes, in whole numbers: the sum of squares of a pixel's channels moves on from channel to channel. */
enum { LRN_STEPS_BITS = 5, LRN_REST_BITS = 14 }; /* segments of an octave; of the position in one */

static inline int64_t lrn_factor(const int32_t *bases, uint32_t sum) {
    int octave = sum >> LRN_STEPS_BITS ? 32 - LRN_STEPS_BITS - __builtin_clz(sum) : 0; /* 0 of sums below 32, 1 below 64 */
    int width = octave > 1 ? octave - 1 : 0;                                           /* bits that count in a segment */
    uint32_t segment = (sum >> width) + ((uint32_t)width << LRN_STEPS_BITS);
    int64_t rest = (int64_t)(sum & ((1u << width) - 1)) << (LRN_REST_BITS - width);
    return bases[segment] + ((bases[LRN_SEGMENTS + segment] * rest + (1 << LRN_REST_BITS >> 1)) >> LRN_REST_BITS);
}

static void lrn_codes_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height, half = op->kernel_h / 2, channels = op->channels;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    const int32_t *bases = (const int32_t *)(buffers[op->constants] + op->bias);
    int32_t zero = (int32_t)op->zero_in + STORED_ZERO;
    for (int64_t x = 0; x < op->out_width; x++, in += op->input_pixel, out += op->output_pixel) {
        uint32_t sum = 0;
        for (int64_t c = -half; c < channels; c++) { /* c + half enters, c - half - 1 leaves */
            if (c + half < channels) sum += (uint32_t)((in[c + half] - zero) * (in[c + half] - zero));
            if (c > half) sum -= (uint32_t)((in[c - half - 1] - zero) * (in[c - half - 1] - zero));
            if (c < 0) continue;
            out[c] = requantised(op, (in[c] - zero) * lrn_factor(bases, sum));
        }
    }
}
