/* Depthwise convolution: each lane is a channel. Rows of the output are pieces of work, one or two in each.

   With four_codes() of an instruction set, the codes of four pixels are interleaved, BLOCK_CHANNELS at a time, to four vectors of
   dwords: a dot with the weights of their four taps adds to the sums of LANES channels each. four_codes, which packs those sums to
   codes, restores the order of the channels. Taps are in groups of four: as they come, or the columns of a kernel of 3 x 3. There
   the column of an input pixel is interleaved once and meets three pixels of the output and, with a fourth pixel and weights that
   are moved by a tap, those of the next row.

       [block of BLOCK_CHANNELS]{[group][4][lane][4] weights, [4][lane] bias, [4][lane] scale as float32}

   is what is packed. The last block is shifted back; lanes beyond fewer channels repeat them, for pixels side by side. Without
   four_codes weights are [tap][channel], and the compiler vectorises. */

static void taps_of(const operation *op, int32_t *offsets) {
    for (int64_t t = 0; t < op->kernel_h * op->kernel_w; t++)
        offsets[t] = (int32_t)(t / op->kernel_w * op->dilation_h * op->input_row +
                               t % op->kernel_w * op->dilation_w * op->input_pixel);
}

#ifdef BLOCKS16
enum {
    BLOCK_CHANNELS = 4 * LANES,
    SIDE3 = 3,   /* of a kernel whose columns are groups */
    COLUMNS = 64 /* interleaved at a time: they stay in the nearest cache */
};

typedef uint32_t sums32 __attribute__((vector_size(4 * LANES)));

typedef struct {
    dword quads[4];
} group;

static int in_columns(const operation *op) {
    return op->kernel_h == SIDE3 && op->kernel_w == SIDE3 && op->dilation_h == 1 && op->dilation_w == 1 && op->stride_w <= SIDE3;
}
static int64_t groups_of(const operation *op) { return in_columns(op) ? SIDE3 : ceil_div(op->kernel_h * op->kernel_w, 4); }
static int64_t rows_together(const operation *op) { return in_columns(op) && op->stride_h == 1 ? 2 : 1; }
static int64_t depthwise_items(const operation *op) { return op->images * ceil_div(op->out_height, rows_together(op)); }

/* Return the bytes of a block, and the first channel of one. */
static int64_t depthwise_block(const operation *op) { return (groups_of(op) + 2) * BLOCK_CHANNELS * 4; }
static int64_t first_of(const operation *op, int64_t block) {
    return max(0, min(block * BLOCK_CHANNELS, op->channels - BLOCK_CHANNELS));
}
static int64_t depthwise_bytes(const operation *op) { return ceil_div(op->channels, BLOCK_CHANNELS) * depthwise_block(op); }

static int depthwise_pack(const operation *op, const int8_t *weights, int64_t block_inputs, const int32_t *bias, const double *scale,
                          int8_t *packed, int32_t *packed_bias) {
    int narrow = 1;
    int64_t taps = op->kernel_h * op->kernel_w;
    memset(packed, 0, depthwise_bytes(op));
    for (int64_t block = 0; block * BLOCK_CHANNELS < op->channels; block++, packed += depthwise_block(op))
        for (int64_t i = 0; i < BLOCK_CHANNELS; i++) {
            int64_t c = (first_of(op, block) + i) % op->channels, at = i % 16 / 4 * LANES + i / 16 * 4 + i % 4;
            weight_sums totals = {0, 0};
            for (int64_t t = 0; t < taps; t++) {
                int8_t w = weights[(c / block_inputs * taps + t) * block_inputs + c % block_inputs];
                int64_t g = in_columns(op) ? t % SIDE3 : t / 4, byte = in_columns(op) ? t / SIDE3 : t % 4;
                packed[(g * BLOCK_CHANNELS + at) * 4 + byte] = w;
                totals.sum += w, totals.magnitude += w < 0 ? -w : w;
            }
            narrow &= write_bias(totals, OFFSET, bias[c], packed_bias + c);
            float single = (float)scale[c];
            memcpy(packed + (groups_of(op) * BLOCK_CHANNELS + at) * 4, packed_bias + c, 4);
            memcpy(packed + ((groups_of(op) + 1) * BLOCK_CHANNELS + at) * 4, &single, 4);
        }
    return narrow;
}

/* Some pixels of a row of the output, and some channels of each. */
typedef struct {
    uint8_t *first;
    int64_t step, count, pixels, channels; /* that are stored together */
} target;

enum sums_range {
    WIDE_SUMS,   /* become codes in memory, see store() */
    NARROW_SUMS, /* in registers, see four_codes() */
    CLAMPED_SUMS /* likewise, those below 0 all to one code: four_codes(..., 1) */
};

/* Write the codes of sums that are not narrow, in memory in the order of their channels. */
static void store_ordered(const finish *f, const vec *sums, const target *to, uint8_t *out) {
    int32_t quads[BLOCK_CHANNELS], ordered[2 * BLOCK_CHANNELS] = {0};
    memcpy(quads, sums, sizeof quads);
    for (int i = 0; i < BLOCK_CHANNELS; i++) ordered[i] = quads[i % 16 / 4 * LANES + i / 16 * 4 + i % 4];
    for (int64_t p = 0; p < to->pixels; p++, out += to->channels) {
        vec vectors[4];
        for (int v = 0; v < 4; v++) vectors[v] = load_sums(ordered + p * to->channels + v * LANES);
        store(f, vectors, 1, (int)ceil_div(to->channels, LANES), &out);
    }
}

static inline __attribute__((always_inline)) void end_block(const finish *f, const limits *l, const vec *sums, const scales *s,
                                                            const target *to, uint8_t *out, enum sums_range range) {
    if (range == WIDE_SUMS)
        store_ordered(f, sums, to, out);
    else
        store_codes(out, four_codes(l, sums, s->of, range == CLAMPED_SUMS), to->pixels * to->channels);
}

/* Compute pixels from their columns; their weights are moved by ``row`` taps. */
static inline __attribute__((always_inline)) void columns_run(const group *columns, int64_t step, const int8_t *w, int row,
                                                              const finish *f, const target *to, enum sums_range range) {
    panel weights[SIDE3][4];
    vec bias[4];
    scales s;
    limits l = LIMITS(f);
    UNROLL for (int g = 0; g < SIDE3; g++) UNROLL for (int q = 0; q < 4; q++)
        weights[g][q] = (panel)((sums32)load(w + (g * BLOCK_CHANNELS + q * LANES) * 4) << 8 * row);
    UNROLL for (int q = 0; q < 4; q++) bias[q] = load(w + (SIDE3 * BLOCK_CHANNELS + q * LANES) * 4);
    memcpy(&s, w + (SIDE3 + 1) * BLOCK_CHANNELS * 4, sizeof s);
    uint8_t *out = to->first;
    for (int64_t x = 0; x < to->count; x++, columns += step, out += to->step) {
        vec sums[4];
        UNROLL for (int q = 0; q < 4; q++) sums[q] = bias[q];
        UNROLL for (int g = 0; g < SIDE3; g++) UNROLL for (int q = 0; q < 4; q++)
            sums[q] = dot(sums[q], columns[g].quads[q], weights[g][q]);
        end_block(f, &l, sums, &s, to, out, range);
    }
}

static inline __attribute__((always_inline)) void taps_run(const uint8_t *in, int64_t step, const int32_t *offsets, int64_t groups,
                                                           const int8_t *w, const finish *f, const target *to,
                                                           enum sums_range range) {
    scales s;
    limits l = LIMITS(f);
    uint8_t *out = to->first;
    memcpy(&s, w + (groups + 1) * BLOCK_CHANNELS * 4, sizeof s);
    for (int64_t x = 0; x < to->count; x++, in += step, out += to->step) {
        vec sums[4];
        UNROLL for (int q = 0; q < 4; q++) sums[q] = load(w + (groups * BLOCK_CHANNELS + q * LANES) * 4);
        for (int64_t g = 0; g < groups; g++) {
            const int32_t *o = offsets + 4 * g;
            group taps;
            interleave(in + o[0], in + o[1], in + o[2], in + o[3], to->channels, taps.quads);
            UNROLL for (int q = 0; q < 4; q++) sums[q] = dot(sums[q], taps.quads[q], load(w + (g * BLOCK_CHANNELS + q * LANES) * 4));
        }
        end_block(f, &l, sums, &s, to, out, range);
    }
}

#define RANGE_OF(f) ((f)->negative || !(f)->narrow ? WIDE_SUMS : (f)->low >= 0 ? CLAMPED_SUMS : NARROW_SUMS)
#define WITH_RANGE(f, call, ...) \
    (RANGE_OF(f) == WIDE_SUMS     ? call(__VA_ARGS__, WIDE_SUMS) \
     : RANGE_OF(f) == NARROW_SUMS ? call(__VA_ARGS__, NARROW_SUMS) \
                                  : call(__VA_ARGS__, CLAMPED_SUMS))

/* Return the pixels whose channels fill a vector side by side, if they are read and written side by side. */
static int64_t pixels_side_by_side(const operation *op) {
    int64_t pixels = op->channels < BLOCK_CHANNELS ? BLOCK_CHANNELS / op->channels : 1;
    int adjacent = op->stride_w == 1 && op->input_pixel == op->channels && op->output_pixel == op->channels;
    return adjacent && pixels * op->channels == BLOCK_CHANNELS && pixels <= op->out_width ? pixels : 1;
}

static void depthwise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t rows = rows_together(op), per = ceil_div(op->out_height, rows), n = item / per, y = item % per * rows;
    int64_t taps = op->kernel_h * op->kernel_w, block = depthwise_block(op), side = in_columns(op) ? pixels_side_by_side(op) : 1;
    const int8_t *w = (const int8_t *)buffers[op->constants] + op->weights;
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + n * op->input_image +
                           (y * op->stride_h - op->pad_h) * op->input_row - op->pad_w * op->input_pixel;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + n * op->output_image + y * op->output_row;
    int32_t offsets[MAX_TAPS + 3];
    if (!in_columns(op)) {
        taps_of(op, offsets);
        for (int64_t t = taps; t % 4; t++) offsets[t] = offsets[taps - 1]; /* its weights are 0 */
    }
    rows = min(rows, op->out_height - y);
    unsigned mode = begin_rounding();
    for (int64_t b = 0; b * BLOCK_CHANNELS < op->channels; b++, w += block) {
        int64_t c = first_of(op, b), step = side * op->stride_w;
        target to = {output + c, side * op->output_pixel, op->out_width, side, min(BLOCK_CHANNELS, op->channels)};
        finish f = finish_of(op, buffers[op->constants], c, to.channels);
        if (!in_columns(op)) {
            WITH_RANGE(&f, taps_run, input + c, op->stride_w * op->input_pixel, offsets, groups_of(op), w, &f, &to);
            continue;
        }
        for (int64_t x = 0; x < op->out_width; x += to.count * side) {
            if (x + side > op->out_width) x = op->out_width - side; /* the last pixels are shifted back */
            to.count = min((COLUMNS - SIDE3) / step + 1, (op->out_width - x) / side);
            group columns[COLUMNS];
            const uint8_t *first = input + x * op->stride_w * op->input_pixel + c;
            int64_t last = (rows + 1) * op->input_row; /* one row of the output has no fourth row: its weights are 0 */
            const uint8_t *top = first;
            for (int64_t i = 0; i < (to.count - 1) * step + SIDE3; i++, top += op->input_pixel)
                interleave(top, top + op->input_row, top + 2 * op->input_row, top + last, side * to.channels, columns[i].quads);
            for (int64_t row = 0; row < rows; row++) {
                to.first = output + row * op->output_row + x * op->output_pixel + c;
                if (row)
                    WITH_RANGE(&f, columns_run, columns, step, w, 1, &f, &to);
                else
                    WITH_RANGE(&f, columns_run, columns, step, w, 0, &f, &to);
            }
        }
    }
    end_rounding(mode);
}
#else
enum { BLOCK_VECTORS = 4, BLOCK_CHANNELS = BLOCK_VECTORS * LANES }; /* that are computed together */
static int64_t depthwise_items(const operation *op) { return op->images * op->out_height; }

static int64_t depthwise_row(const operation *op) { return ceil_div(op->channels, BLOCK_CHANNELS) * BLOCK_CHANNELS; }
static int64_t depthwise_rows(const operation *op) { return op->kernel_h * op->kernel_w; }
static int64_t depthwise_at(const operation *op, int64_t tap, int64_t channel) { return tap * depthwise_row(op) + channel; }

static void depthwise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const uint8_t *constants = buffers[op->constants], *input = buffers[op->input_buffer] + op->input_offset;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset;
    int64_t row = depthwise_row(op), taps = op->kernel_h * op->kernel_w;
    int32_t offsets[MAX_TAPS];
    taps_of(op, offsets);
    for (int64_t first = 0; first < op->channels; first += BLOCK_CHANNELS) {
        int64_t lanes = min(BLOCK_CHANNELS, op->channels - first);
        const int8_t *weights = (const int8_t *)constants + op->weights + first;
        finish f = finish_of(op, constants, first, lanes);
        cursor at = cursor_at(op, item * op->out_width, input + first, output + first);
        for (int64_t x = 0; x < op->out_width; x++, next(&at, op, input + first, output + first)) {
            int32_t sums[BLOCK_CHANNELS] = {0};
            memcpy(sums, f.bias, lanes * sizeof *sums);
            if (lanes == BLOCK_CHANNELS) {
                for (int64_t t = 0; t < taps; t++) {
                    const uint8_t *in = at.input + offsets[t];
                    const int8_t *w = weights + t * row;
                    for (int i = 0; i < BLOCK_CHANNELS; i++) sums[i] += (int16_t)((in[i] - (STORED_ZERO - OFFSET)) * w[i]);
                }
            } else {
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t i = 0; i < lanes; i++)
                        sums[i] += (int16_t)((at.input[offsets[t] + i] - (STORED_ZERO - OFFSET)) * weights[t * row + i]);
            }
            vec vectors[BLOCK_VECTORS];
            for (int v = 0; v < BLOCK_VECTORS; v++) vectors[v] = load_sums(sums + v * LANES);
            store(&f, vectors, 1, (int)ceil_div(lanes, LANES), &at.output);
        }
    }
}

static int64_t depthwise_bytes(const operation *op) { return depthwise_rows(op) * depthwise_row(op); }

static int depthwise_pack(const operation *op, const int8_t *weights, int64_t block_inputs, const int32_t *bias, const double *scale,
                          int8_t *packed, int32_t *packed_bias) {
    int narrow = 1;
    int64_t taps = op->kernel_h * op->kernel_w;
    (void)scale;
    memset(packed, 0, depthwise_bytes(op));
    for (int64_t c = 0; c < op->channels; c++) {
        weight_sums totals = {0, 0};
        for (int64_t t = 0; t < taps; t++) {
            int8_t w = weights[(c / block_inputs * taps + t) * block_inputs + c % block_inputs];
            packed[depthwise_at(op, t, c)] = w;
            totals.sum += w, totals.magnitude += w < 0 ? -w : w;
        }
        narrow &= write_bias(totals, OFFSET, bias[c], packed_bias + c);
    }
    return narrow;
}
#endif
