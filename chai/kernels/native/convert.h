/* Conversions between arrays of the host, one pixel after the other along a row, and codes, one channel after the other.

   Codes of float32 are computed without a division where that has the same codes. The instruction set's file defines
     QUOTIENTS                                  numbers that it converts side by side
     AT_ONCE, SCALED_BY                         numbers that are divided together; factor of the inverse in ``quotients``
     nearest_codes(x, count, q, out)            writes the codes of a multiple of QUOTIENTS numbers, AT_ONCE at a time, and stops
                                                where one is NaN or may have a wrong code; it returns how many are before these
     floats_of_vectors(codes, step, zero, out)  writes (code - zero) * step
     has_codes(q), has_floats(step, zero)       whether it does so for this step, which is from 2^-60 to 2^60 in ``q`` */

#if defined __clang__ || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (bytes){__VA_ARGS__})
#endif
#define LOW(a, b) PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

enum { TILE = 16 }; /* pixels and channels that are transposed together */

typedef uint8_t bytes __attribute__((vector_size(TILE)));

/* Interleave the first half of ``count`` vectors with the second one. Each round moves the highest bit of a byte's place in them
   to the lowest: after four, byte j of vector i of 16 is byte i of vector j. */
INLINE void interleave_halves(bytes *a, int count, int rounds) {
    UNROLL for (int round = 0; round < rounds; round++) {
        bytes b[TILE];
        UNROLL for (int i = 0; i < count / 2; i++) {
            b[2 * i] = LOW(a[i], a[i + count / 2]);
            b[2 * i + 1] = HIGH(a[i], a[i + count / 2]);
        }
        UNROLL for (int i = 0; i < count; i++) a[i] = b[i];
    }
}

/* The transpose of 16 x 16 bytes. */
static inline void transpose_tile(const uint8_t *in, int64_t row_in, uint8_t *out, int64_t row_out) {
    bytes a[TILE];
    for (int i = 0; i < TILE; i++) memcpy(&a[i], in + i * row_in, TILE);
    interleave_halves(a, TILE, 4);
    for (int i = 0; i < TILE; i++) {
        a[i] ^= STORED_ZERO;
        memcpy(out + i * row_out, &a[i], TILE);
    }
}

/* Interleave three rows, 16 bytes of each: the channels of a picture. */
static inline void interleave_rows(const uint8_t *in, int64_t row_in, uint8_t *out) {
    bytes a, b, c, all[3];
    memcpy(&a, in, TILE), memcpy(&b, in + row_in, TILE), memcpy(&c, in + 2 * row_in, TILE);
    all[0] = PICK(a, b, 0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5);
    all[1] = PICK(a, b, 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26);
    all[2] = PICK(a, b, 0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31, 0);
    all[0] = PICK(all[0], c, 0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15);
    all[1] = PICK(all[1], c, 0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15);
    all[2] = PICK(all[2], c, 26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31);
    for (int i = 0; i < 3; i++) {
        all[i] ^= STORED_ZERO;
        memcpy(out + i * TILE, &all[i], TILE);
    }
}

/* Write out[j * row_out + i] = in[i * row_in + j] ^ STORED_ZERO: whole tiles, the last ones shifted back. */
static void transpose(const uint8_t *in, int64_t row_in, uint8_t *out, int64_t row_out, int64_t rows, int64_t columns) {
    if (rows == 3 && row_out == 3 && columns >= TILE) {
        for (int64_t j = 0; j < columns; j += TILE) {
            int64_t column = min(j, columns - TILE);
            interleave_rows(in + column, row_in, out + column * 3);
        }
        return;
    }
    if (rows < TILE || columns < TILE) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) out[j * row_out + i] = in[i * row_in + j] ^ STORED_ZERO;
        return;
    }
    for (int64_t i = 0; i < rows; i += TILE)
        for (int64_t j = 0; j < columns; j += TILE) {
            int64_t row = min(i, rows - TILE), column = min(j, columns - TILE);
            transpose_tile(in + row * row_in + column, row_in, out + column * row_out + row, row_out);
        }
}

static void load_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    transpose(ROW(input, n, y), op->input_channel, out, op->output_pixel, op->channels, op->out_width);
}

static void store_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    transpose(ROW(input, n, y), op->input_pixel, out, op->output_channel, op->out_width, op->channels);
}

/* Write every second byte. Of its last vector the first byte is left out: that after the last of ``in`` may be none. */
static inline void copy_every_second(const uint8_t *in, uint8_t *out, int64_t count) {
    bytes a, b;
    int64_t x = 0;
    for (; x + TILE < count; x += TILE) {
        memcpy(&a, in + 2 * x, TILE), memcpy(&b, in + 2 * x + TILE, TILE);
        a = PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        memcpy(out + x, &a, TILE);
    }
    if (x) {
        x = count - TILE;
        memcpy(&a, in + 2 * x - 1, TILE), memcpy(&b, in + 2 * x - 1 + TILE, TILE);
        a = PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        memcpy(out + x, &a, TILE);
    } else
        for (; x < count; x++) out[x] = in[2 * x];
}

/* Write every ``stride``-th pixel of a row. */
static inline void copy_every(const uint8_t *in, int64_t stride, uint8_t *out, int64_t count) {
    if (stride == 1)
        memmove(out, in, count);
    else if (stride == 2)
        copy_every_second(in, out, count);
    else
        for (int64_t x = 0; x < count; x++) out[x] = in[stride * x];
}

/* One channel and row of the kernel: a plane for each column. That of column j has the pixels of column j - stride, one
   further on, but for the last one of each row. */
static int64_t unfold_items(const operation *op) { return op->images * op->kernel_h * op->channels; }

static void unfold_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / (op->kernel_h * op->channels), i = item / op->channels % op->kernel_h, c = item % op->channels;
    int64_t width = op->out_width, size = op->out_height * width, stride = op->stride_w, apart = op->channels * op->output_channel;
    span down = pixels_inside(i - op->pad_h, op->stride_h, op->height, op->out_height);
    for (int64_t j = 0; j < op->kernel_w; j++) {
        uint8_t *out = (uint8_t *)ROW(output, n, 0) + (i * op->kernel_w + j) * apart + c * op->output_channel;
        span across = pixels_inside(j - op->pad_w, stride, op->width, width);
        if (j < stride)
            memset(out, (int)op->zero_in, size);
        else {
            memmove(out, out - stride * apart + 1, size - 1);
            for (int64_t y = 1; y <= op->out_height; y++) out[y * width - 1] = (uint8_t)op->zero_in;
            across.first = max(across.first, width - 1);
        }
        if (across.first >= across.end) continue;
        int64_t left = across.first * stride + j - op->pad_w;
        for (int64_t y = down.first; y < down.end; y++) {
            const uint8_t *in = ROW(input, n, y * op->stride_h - op->pad_h + i) + c * op->input_channel + left;
            copy_every(in, stride, out + y * width + across.first, across.end - across.first);
        }
    }
}

/* Numbers up to the next multiple of a vector of the first cache: loads that lie in two lines of it take twice as long. */
static inline int64_t count_to_line(const void *at, int64_t size, int64_t count) {
    return min(count, (int64_t)(-(uintptr_t)at % 64 / size));
}

/* Write the nearest codes of x / step, clamped; return whether one x is NaN. Adding the largest float32 below a half and truncating
   rounds half away from zero. The clamp comes first, where it cannot change a code. */
static int codes_by_division(const float *x, int64_t count, const quotients *q, int8_t *out) {
    const float half = 0.49999997f, lowest = q->low - q->zero - 0.4f, highest = q->high - q->zero + 0.4f;
    int wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        float near = x[i] / q->step;
        wrong |= near != near;
        near = near > lowest ? near : lowest;
        near = near < highest ? near : highest;
        out[i] = (int8_t)((int32_t)(near + (near < 0 ? -half : half)) + q->zero);
    }
    return wrong;
}

/* The same for a multiple of QUOTIENTS numbers: by products, where these have the codes of a division. */
static int codes_by_products(const float *x, intptr_t count, const quotients *q, int8_t *out) {
    int wrong = 0;
    for (intptr_t i = 0, n; (i += nearest_codes(x + i, count - i, q, out + i)) < count; i += n) {
        n = min(AT_ONCE, count - i);
        wrong |= codes_by_division(x + i, n, q, out + i);
    }
    return wrong;
}

/* The same for any step and count. The first and the last vector overlap with others, which begin with a line of the cache. */
static int floats_to_codes(const float *x, intptr_t count, float step, int32_t low, int32_t high, int32_t zero, int8_t *out) {
    float inverse = 1 / step, rest = (float)((1 - (double)inverse * step) / step);
    quotients q = {step, low, high, zero, inverse * SCALED_BY, rest * SCALED_BY};
    if (!(step > 0x1p-60f && step < 0x1p60f && has_codes(&q))) return codes_by_division(x, count, &q, out);
    if (count < QUOTIENTS) {
        float all[QUOTIENTS] = {0};
        int8_t codes[QUOTIENTS];
        memcpy(all, x, count * sizeof *x);
        int wrong = codes_by_products(all, QUOTIENTS, &q, codes);
        memcpy(out, codes, count);
        return wrong;
    }
    intptr_t first = count_to_line(x, sizeof *x, count), last = count - QUOTIENTS, whole = (count - first) / QUOTIENTS * QUOTIENTS;
    int wrong = codes_by_products(x + first, whole, &q, out + first);
    if (first) wrong |= codes_by_products(x, QUOTIENTS, &q, out);
    if (first + whole < count) wrong |= codes_by_products(x + last, QUOTIENTS, &q, out + last);
    return wrong;
}

/* Write (code - zero) * step, with vectors as above. */
static void codes_to_floats(const int8_t *codes, intptr_t count, float step, int32_t zero, float *out) {
    if (count < QUOTIENTS || !has_floats(step, zero)) {
        for (intptr_t i = 0; i < count; i++) out[i] = (float)(codes[i] - zero) * step;
        return;
    }
    intptr_t first = count_to_line(out, sizeof *out, count), last = count - QUOTIENTS;
    if (first) floats_of_vectors(codes, step, zero, out);
    for (intptr_t i = first; i < last; i += QUOTIENTS) floats_of_vectors(codes + i, step, zero, out + i);
    floats_of_vectors(codes + last, step, zero, out + last);
}

enum { PIECE = 1 << 14 }; /* numbers of one piece of work */

static int64_t numbers(const operation *op) { return op->images * op->channels * op->height * op->width; }
static int64_t conversion_items(const operation *op) { return ceil_div(numbers(op), PIECE); }

/* Return the numbers of a piece. All but the first begin with a line of the cache. */
static span piece_of(const operation *op, const float *floats, int64_t item) {
    int64_t count = numbers(op), begin = count_to_line(floats, sizeof *floats, count) + item * PIECE;
    return (span){item ? min(begin, count) : 0, item < conversion_items(op) - 1 ? min(begin + PIECE, count) : count};
}

/* Note that a PACK has met NaN. */
static void note_nan(const operation *op, uint8_t *const *buffers) {
    __atomic_store_n(buffers[op->second_buffer] + op->second_offset, 1, __ATOMIC_RELAXED);
}

static void pack_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const float *x = (const float *)(buffers[op->input_buffer] + op->input_offset);
    int8_t *out = (int8_t *)buffers[op->output_buffer] + op->output_offset;
    span s = piece_of(op, x, item);
    if (floats_to_codes(x + s.first, s.end - s.first, float_of(op->factor), (int32_t)op->low, (int32_t)op->high,
                        (int32_t)op->zero_out, out + s.first))
        note_nan(op, buffers);
}

static void unpack_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const int8_t *codes = (const int8_t *)buffers[op->input_buffer] + op->input_offset;
    float *out = (float *)(buffers[op->output_buffer] + op->output_offset);
    span s = piece_of(op, out, item);
    codes_to_floats(codes + s.first, s.end - s.first, float_of(op->factor), (int32_t)op->zero_in, out + s.first);
}

static void ends_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    const int8_t *codes = (const int8_t *)buffers[op->input_buffer] + op->input_offset;
    int64_t first = item * PIECE, end = min(first + PIECE, numbers(op));
    int8_t low = (int8_t)op->low, high = (int8_t)op->high;
    int32_t count = 0;
    for (int64_t i = first; i < end; i++) count += (codes[i] == low) | (codes[i] == high);
    __atomic_fetch_add((int32_t *)(buffers[op->output_buffer] + op->output_offset), count, __ATOMIC_RELAXED);
}
