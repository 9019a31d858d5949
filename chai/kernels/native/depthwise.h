/* Depthwise convolution: each lane is a channel. Rows of the output are pieces of work, one or two in each.

   With four_codes() of an instruction set, the codes of four pixels are interleaved, DEEP channels at a time, to four vectors of
   dwords: a dot with the weights of their four taps adds to the sums of LANES channels each. four_codes, which packs those sums to
   codes, restores the order of the channels. Taps are in groups of four: as they come, or the columns of a kernel of 3 x 3. There
   the column of an input pixel is interleaved once and meets three pixels of the output and, with a fourth pixel and weights that
   are moved by a tap, those of the next row.

       [block of DEEP channels]{[group][4][lane][4] weights, [4][lane] bias, [4][lane] scale as float32}

   is what is packed. The last block is shifted back; lanes beyond fewer channels repeat them, for pixels side by side. Without
   four_codes weights are [tap][channel], and the compiler vectorises. */

static void taps_of(const operation *op, int32_t *offsets) {
    for (int64_t t = 0; t < op->kernel_h * op->kernel_w; t++)
        offsets[t] = (int32_t)(t / op->kernel_w * op->dilation_h * op->input_row +
                               t % op->kernel_w * op->dilation_w * op->input_pixel);
}

#ifdef BLOCKS16
enum {
    DEEP = 4 * LANES,
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
static int64_t depthwise_block(const operation *op) { return (groups_of(op) + 2) * DEEP * 4; }
static int64_t first_of(const operation *op, int64_t block) { return most(0, least(block * DEEP, op->channels - DEEP)); }
static int64_t depthwise_bytes(const operation *op) { return ceil_div(op->channels, DEEP) * depthwise_block(op); }

static int depthwise_pack(const operation *op, const int8_t *from, int64_t inputs, const int32_t *bias, const double *scale,
                          int8_t *to, int32_t *packed_bias) {
    int narrow = 1;
    int64_t taps = op->kernel_h * op->kernel_w;
    memset(to, 0, depthwise_bytes(op));
    for (int64_t block = 0; block * DEEP < op->channels; block++, to += depthwise_block(op))
        for (int64_t i = 0; i < DEEP; i++) {
            int64_t c = (first_of(op, block) + i) % op->channels, at = i % 16 / 4 * LANES + i / 16 * 4 + i % 4;
            weighed all = {0, 0};
            for (int64_t t = 0; t < taps; t++) {
                int8_t w = from[(c / inputs * taps + t) * inputs + c % inputs];
                int64_t g = in_columns(op) ? t % SIDE3 : t / 4, byte = in_columns(op) ? t / SIDE3 : t % 4;
                to[(g * DEEP + at) * 4 + byte] = w;
                all.sum += w, all.size += w < 0 ? -w : w;
            }
            narrow &= bias_in(all, OFFSET, bias[c], packed_bias + c);
            float single = (float)scale[c];
            memcpy(to + (groups_of(op) * DEEP + at) * 4, packed_bias + c, 4);
            memcpy(to + ((groups_of(op) + 1) * DEEP + at) * 4, &single, 4);
        }
    return narrow;
}

/* Some pixels of a row of the output, and some channels of each. */
typedef struct {
    uint8_t *first;
    int64_t step, count, pixels, channels; /* that are stored together */
} target;

enum ending { WIDE_ENDING, NARROW_ENDING, POSITIVE_ENDING }; /* how sums become codes */

/* Write the codes of sums that are not narrow, in memory in the order of their channels. */
static void store_ordered(const finish *f, const vec *sums, const target *to, uint8_t *out) {
    int32_t quads[DEEP], ordered[2 * DEEP] = {0};
    memcpy(quads, sums, sizeof quads);
    for (int i = 0; i < DEEP; i++) ordered[i] = quads[i % 16 / 4 * LANES + i / 16 * 4 + i % 4];
    for (int64_t p = 0; p < to->pixels; p++, out += to->channels) {
        vec vectors[4];
        for (int v = 0; v < 4; v++) vectors[v] = gather(ordered + p * to->channels + v * LANES);
        store(f, vectors, 1, (int)ceil_div(to->channels, LANES), &out);
    }
}

static inline __attribute__((always_inline)) void end_block(const finish *f, const limits *l, const vec *sums, const scales *s,
                                                            const target *to, uint8_t *out, enum ending ending) {
    if (ending == WIDE_ENDING)
        store_ordered(f, sums, to, out);
    else
        put_codes(out, four_codes(l, sums, s->of, ending == POSITIVE_ENDING), to->pixels * to->channels);
}

/* Compute pixels from their columns; their weights are moved by ``row`` taps. */
static inline __attribute__((always_inline)) void columns_run(const group *columns, int64_t step, const int8_t *w, int row,
                                                              const finish *f, const target *to, enum ending ending) {
    panel weights[SIDE3][4];
    vec bias[4];
    scales s;
    limits l = LIMITS(f);
    UNROLL for (int g = 0; g < SIDE3; g++) UNROLL for (int q = 0; q < 4; q++)
        weights[g][q] = (panel)((sums32)load(w + (g * DEEP + q * LANES) * 4) << 8 * row);
    UNROLL for (int q = 0; q < 4; q++) bias[q] = load(w + (SIDE3 * DEEP + q * LANES) * 4);
    memcpy(&s, w + (SIDE3 + 1) * DEEP * 4, sizeof s);
    uint8_t *out = to->first;
    for (int64_t x = 0; x < to->count; x++, columns += step, out += to->step) {
        vec sums[4];
        UNROLL for (int q = 0; q < 4; q++) sums[q] = bias[q];
        UNROLL for (int g = 0; g < SIDE3; g++) UNROLL for (int q = 0; q < 4; q++)
            sums[q] = dot(sums[q], columns[g].quads[q], weights[g][q]);
        end_block(f, &l, sums, &s, to, out, ending);
    }
}

static inline __attribute__((always_inline)) void taps_run(const uint8_t *in, int64_t step, const int32_t *offsets, int64_t groups,
                                                           const int8_t *w, const finish *f, const target *to,
                                                           enum ending ending) {
    scales s;
    limits l = LIMITS(f);
    uint8_t *out = to->first;
    memcpy(&s, w + (groups + 1) * DEEP * 4, sizeof s);
    for (int64_t x = 0; x < to->count; x++, in += step, out += to->step) {
        vec sums[4];
        UNROLL for (int q = 0; q < 4; q++) sums[q] = load(w + (groups * DEEP + q * LANES) * 4);
        for (int64_t g = 0; g < groups; g++) {
            const int32_t *o = offsets + 4 * g;
            group taps;
            interleave(in + o[0], in + o[1], in + o[2], in + o[3], to->channels, taps.quads);
            UNROLL for (int q = 0; q < 4; q++) sums[q] = dot(sums[q], taps.quads[q], load(w + (g * DEEP + q * LANES) * 4));
        }
        end_block(f, &l, sums, &s, to, out, ending);
    }
}

#define ENDING(f) ((f)->negative || !(f)->narrow ? WIDE_ENDING : (f)->low >= 0 ? POSITIVE_ENDING : NARROW_ENDING)
#define WITH_ENDING(f, call, ...) \
    (ENDING(f) == WIDE_ENDING     ? call(__VA_ARGS__, WIDE_ENDING) \
     : ENDING(f) == NARROW_ENDING ? call(__VA_ARGS__, NARROW_ENDING) \
                                  : call(__VA_ARGS__, POSITIVE_ENDING))

/* Return the pixels whose channels fill a vector side by side, if they are read and written side by side. */
static int64_t pixels_side_by_side(const operation *op) {
    int64_t pixels = op->channels < DEEP ? DEEP / op->channels : 1;
    int adjacent = op->stride_w == 1 && op->input_pixel == op->channels && op->output_pixel == op->channels;
    return adjacent && pixels * op->channels == DEEP && pixels <= op->out_width ? pixels : 1;
}

static void depthwise_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t rows = rows_together(op), per = ceil_div(op->out_height, rows), n = item / per, y = item % per * rows;
    int64_t taps = op->kernel_h * op->kernel_w, block = depthwise_block(op), side = in_columns(op) ? pixels_side_by_side(op) : 1;
    const int8_t *w = (const int8_t *)buffers[op->constants] + op->weights;
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + n * op->input_image +
                           (y * op->stride_h - op->pad_h) * op->input_row - op->pad_w * op->input_pixel;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + n * op->output_image + y * op->output_row;
    int32_t offsets[TAPS + 3];
    if (!in_columns(op)) {
        taps_of(op, offsets);
        for (int64_t t = taps; t % 4; t++) offsets[t] = offsets[taps - 1]; /* its weights are 0 */
    }
    rows = least(rows, op->out_height - y);
    unsigned mode = begin_rounding();
    for (int64_t b = 0; b * DEEP < op->channels; b++, w += block) {
        int64_t c = first_of(op, b), step = side * op->stride_w;
        target to = {output + c, side * op->output_pixel, op->out_width, side, least(DEEP, op->channels)};
        finish f = finish_of(op, buffers[op->constants], c, to.channels);
        if (!in_columns(op)) {
            WITH_ENDING(&f, taps_run, input + c, op->stride_w * op->input_pixel, offsets, groups_of(op), w, &f, &to);
            continue;
        }
        for (int64_t x = 0; x < op->out_width; x += to.count * side) {
            if (x + side > op->out_width) x = op->out_width - side; /* the last pixels are shifted back */
            to.count = least((COLUMNS - SIDE3) / step + 1, (op->out_width - x) / side);
            group columns[COLUMNS];
            const uint8_t *first = input + x * op->stride_w * op->input_pixel + c;
            int64_t last = (rows + 1) * op->input_row; /* one row of the output has no fourth row: its weights are 0 */
            const uint8_t *top = first;
            for (int64_t i = 0; i < (to.count - 1) * step + SIDE3; i++, top += op->input_pixel)
                interleave(top, top + op->input_row, top + 2 * op->input_row, top + last, side * to.channels, columns[i].quads);
            for (int64_t row = 0; row < rows; row++) {
                to.first = output + row * op->output_row + x * op->output_pixel + c;
                if (row)
                    WITH_ENDING(&f, columns_run, columns, step, w, 1, &f, &to);
                else
                    WITH_ENDING(&f, columns_run, columns, step, w, 0, &f, &to);
            }
        }
    }
    end_rounding(mode);
}
#else
enum { DEEP = 4 }; /* vectors of channels that are computed together */
static int64_t depthwise_items(const operation *op) { return op->images * op->out_height; }

static int64_t depthwise_row(const operation *op) { return ceil_div(op->channels, DEEP * LANES) * DEEP * LANES; }
static int64_t depthwise_rows(const operation *op) { return op->kernel_h * op->kernel_w; }
static int64_t depthwise_at(const operation *op, int64_t tap, int64_t channel) { return tap * depthwise_row(op) + channel; }

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
            memcpy(sums, f.bias, lanes * sizeof *sums);
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


static int64_t depthwise_bytes(const operation *op) { return depthwise_rows(op) * depthwise_row(op); }

static int depthwise_pack(const operation *op, const int8_t *from, int64_t inputs, const int32_t *bias, const double *scale,
                          int8_t *to, int32_t *packed_bias) {
    int narrow = 1;
    int64_t taps = op->kernel_h * op->kernel_w;
    (void)scale;
    memset(to, 0, depthwise_bytes(op));
    for (int64_t c = 0; c < op->channels; c++) {
        weighed all = {0, 0};
        for (int64_t t = 0; t < taps; t++) {
            int8_t w = from[(c / inputs * taps + t) * inputs + c % inputs];
            to[depthwise_at(op, t, c)] = w;
            all.sum += w, all.size += w < 0 ? -w : w;
        }
        narrow &= bias_in(all, OFFSET, bias[c], packed_bias + c);
    }
    return narrow;
}
#endif
