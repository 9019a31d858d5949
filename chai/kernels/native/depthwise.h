/* Depthwise convolution: each lane is a channel. One row of the output is one piece of work.

   With pairs() of 16 bits, which winograd.h describes, weights are [pair of taps][channel][2], and the stored codes of two
   pixels are interleaved. Otherwise they are [tap][channel], and the compiler vectorises. */

static int64_t depthwise_items(const operation *op) { return op->images * op->out_height; }

static void taps_of(const operation *op, int32_t *offsets) {
    for (int64_t t = 0; t < op->kernel_h * op->kernel_w; t++)
        offsets[t] = (int32_t)(t / op->kernel_w * op->dilation_h * op->input_row +
                               t % op->kernel_w * op->dilation_w * op->input_pixel);
}

#ifdef BLOCKS16
enum { ABREAST = 4 }; /* pixels that are computed together */
typedef int16_t tap_weight;

static int64_t depthwise_row(const operation *op) { return ceil_div(op->channels, LANES) * LANES * 2; }
static int64_t depthwise_rows(const operation *op) { return ceil_div(op->kernel_h * op->kernel_w, 2); }
static int64_t depthwise_at(const operation *op, int64_t tap, int64_t channel) {
    return tap / 2 * depthwise_row(op) + channel * 2 + tap % 2;
}
enum { DEPTHWISE_OFFSET = AT };

/* Write the sums of some pixels, for LANES channels: ``taps`` is rounded up to a whole number of pairs. */
static inline __attribute__((always_inline)) void tap_sums(const uint8_t *const *in, const int32_t *offsets, int64_t taps,
                                                           const int16_t *w, int64_t row, vec *sums) {
    UNROLL for (int p = 0; p < ABREAST; p++) sums[p] = zero();
    for (int64_t t = 0; t < taps; t += 2, w += row) {
        vec weights = load((const int8_t *)w);
        UNROLL for (int p = 0; p < ABREAST; p++)
            sums[p] = pairs(sums[p], paired(in[p] + offsets[t], in[p] + offsets[t + 1]), weights);
    }
}

/* The same for fewer channels than lanes, of which a vector would read beyond the blob. */
static void few_tap_sums(const uint8_t *const *in, const int32_t *offsets, int64_t taps, const int16_t *w, int64_t row,
                         int64_t channels, vec *sums) {
    uint8_t first[LANES] = {0}, second[LANES] = {0};
    for (int p = 0; p < ABREAST; p++) {
        sums[p] = zero();
        for (int64_t t = 0; t < taps; t += 2) {
            memcpy(first, in[p] + offsets[t], channels), memcpy(second, in[p] + offsets[t + 1], channels);
            sums[p] = pairs(sums[p], paired(first, second), load((const int8_t *)(w + t / 2 * row)));
        }
    }
}

static void depthwise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const uint8_t *constants = buffers[op->constants], *input = buffers[op->input_buffer] + op->input_offset;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset, beyond[LANES];
    int64_t row = depthwise_row(op), taps = depthwise_rows(op) * 2;
    int32_t offsets[TAPS + 1];
    taps_of(op, offsets);
    offsets[taps - 1] = offsets[op->kernel_h * op->kernel_w - 1]; /* a last tap without a second one has a weight of 0 there */
    unsigned mode = begin_rounding();
    for (int64_t c = 0; c < op->channels; c += LANES) {
        int64_t first = most(0, least(c, op->channels - LANES)); /* the last vector is shifted back */
        const int16_t *weights = (const int16_t *)(constants + op->weights) + first * 2;
        finish f = finish_of(op, constants, first, least(LANES, op->channels));
        cursor at = cursor_at(op, item * op->out_width, input + first, output + first);
        for (int64_t x = 0; x < op->out_width; x += ABREAST) {
            const uint8_t *in[ABREAST];
            uint8_t *out[ABREAST];
            vec sums[ABREAST];
            for (int p = 0; p < ABREAST; p++)
                if (x + p < op->out_width)
                    in[p] = at.input, out[p] = at.output, next(&at, op, input + first, output + first);
                else
                    in[p] = in[p - 1], out[p] = beyond;
            if (op->channels < LANES)
                few_tap_sums(in, offsets, taps, weights, row, op->channels, sums);
            else
                tap_sums(in, offsets, taps, weights, row, sums);
            if (!stored(&f, sums, ABREAST, 1, out)) store(&f, sums, ABREAST, 1, out);
        }
    }
    end_rounding(mode);
}
#else
enum { DEEP = 4 }; /* vectors of channels that are computed together */
typedef int8_t tap_weight;

static int64_t depthwise_row(const operation *op) { return ceil_div(op->channels, DEEP * LANES) * DEEP * LANES; }
static int64_t depthwise_rows(const operation *op) { return op->kernel_h * op->kernel_w; }
static int64_t depthwise_at(const operation *op, int64_t tap, int64_t channel) { return tap * depthwise_row(op) + channel; }
enum { DEPTHWISE_OFFSET = OFFSET };

static void depthwise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const uint8_t *constants = buffers[op->constants], *input = buffers[op->input_buffer] + op->input_offset;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset;
    int64_t row = depthwise_row(op), taps = op->kernel_h * op->kernel_w;
    int32_t offsets[TAPS];
    taps_of(op, offsets);
    for (int64_t first = 0; first < op->channels; first += DEEP * LANES) {
        int64_t lanes = least(DEEP * LANES, op->channels - first);
        const int8_t *weights = (const int8_t *)constants + op->weights + first;
        finish f = finish_of(op, constants, first, lanes);
        cursor at = cursor_at(op, item * op->out_width, input + first, output + first);
        for (int64_t x = 0; x < op->out_width; x++, next(&at, op, input + first, output + first)) {
            int32_t sums[DEEP * LANES] = {0};
            if (lanes == DEEP * LANES) {
                for (int64_t t = 0; t < taps; t++) {
                    const uint8_t *in = at.input + offsets[t];
                    const int8_t *w = weights + t * row;
                    for (int i = 0; i < DEEP * LANES; i++) sums[i] += (int16_t)((in[i] - (AT - OFFSET)) * w[i]);
                }
            } else {
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t i = 0; i < lanes; i++)
                        sums[i] += (int16_t)((at.input[offsets[t] + i] - (AT - OFFSET)) * weights[t * row + i]);
            }
            vec vectors[DEEP];
            for (int v = 0; v < DEEP; v++) vectors[v] = gather(sums + v * LANES);
            store(&f, vectors, 1, (int)ceil_div(lanes, LANES), &at.output);
        }
    }
}
#endif

static int64_t depthwise_bytes(const operation *op) { return depthwise_rows(op) * depthwise_row(op) * (int64_t)sizeof(tap_weight); }

static int depthwise_pack(const operation *op, const int8_t *from, int64_t inputs, const int32_t *bias, int8_t *packed,
                          int32_t *packed_bias) {
    int narrow = 1;
    int64_t taps = op->kernel_h * op->kernel_w;
    tap_weight *to = (tap_weight *)packed;
    memset(packed, 0, depthwise_bytes(op));
    for (int64_t c = 0; c < op->channels; c++) {
        weighed all = {0, 0};
        for (int64_t t = 0; t < taps; t++) {
            int8_t w = from[(c / inputs * taps + t) * inputs + c % inputs];
            to[depthwise_at(op, t, c)] = w;
            all.sum += w, all.size += w < 0 ? -w : w;
        }
        narrow &= bias_in(all, DEPTHWISE_OFFSET, bias[c], packed_bias + c);
    }
    return narrow;
}
