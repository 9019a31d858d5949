/* Pools, sums and copies: one row of the output at a time, all channels of a pixel together. The compiler vectorises. */

static inline const uint8_t *row_of(uint8_t *const *buffers, int64_t buffer, int64_t offset, int64_t n, int64_t image,
                                    int64_t y, int64_t row) {
    return buffers[buffer] + offset + n * image + y * row;
}
#define ROW(place, n, y) \
    row_of(buffers, op->place##_buffer, op->place##_offset, n, op->place##_image, y, op->place##_row)

static int64_t row_items(const operation *op) { return op->images * op->out_height; }

/* Some rows or columns. */
typedef struct {
    int64_t first, end;
} span;

/* Return the rows or columns of a window that are inside the image. */
static inline span window_inside(int64_t index, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
    int64_t first = index * stride - pad;
    span s = {max(first, 0), min(first + kernel, size)};
    return s;
}

/* Return which of ``count`` pixels first, first + stride, ... are among those of an image. */
static inline span pixels_inside(int64_t first, int64_t stride, int64_t size, int64_t count) {
    span s = {first < 0 ? min(ceil_div(-first, stride), count) : 0, first < size ? min(ceil_div(size - first, stride), count) : 0};
    return s;
}

enum { WINDOW_PIXELS = 9 }; /* pixels of a window that are compared in one pass over their channels */

/* Nine pixels of a window, which may be the same ones, and bytes from each window to the next; of the first pixel apart. */
typedef struct {
    const uint8_t *pixels[WINDOW_PIXELS];
    int64_t first_step, step;
} nine;

/* Write the maxima of ``count`` windows, so many channels at a time; the last ones overlap with those before. */
INLINE void maximum_of_channels(const nine *w, uint8_t *out, int64_t step, int64_t count, int64_t channels, int64_t width) {
    const uint8_t *a = w->pixels[0], *b = w->pixels[1], *c = w->pixels[2], *d = w->pixels[3], *e = w->pixels[4];
    const uint8_t *f = w->pixels[5], *g = w->pixels[6], *h = w->pixels[7], *i = w->pixels[8];
    for (int64_t at = 0; count--; at += w->step, a += w->first_step, out += step)
        for (int64_t first = 0; first < channels; first += width) {
            int64_t begin = min(first, channels - width);
            INDEPENDENT for (int64_t k = begin; k < begin + width; k++) {
                const int64_t j = at + k;
                uint8_t ab = a[k] > b[j] ? a[k] : b[j], cd = c[j] > d[j] ? c[j] : d[j], ef = e[j] > f[j] ? e[j] : f[j];
                uint8_t gh = g[j] > h[j] ? g[j] : h[j], abcd = ab > cd ? ab : cd, efgh = ef > gh ? ef : gh;
                uint8_t eight = abcd > efgh ? abcd : efgh;
                out[k] = eight > i[j] ? eight : i[j];
            }
        }
}

static void maximum_of_nine(const nine *w, uint8_t *out, int64_t step, int64_t count, int64_t channels) {
    if (channels >= 64)
        maximum_of_channels(w, out, step, count, channels, 64);
    else if (channels >= 16)
        maximum_of_channels(w, out, step, count, channels, 16);
    else
        maximum_of_channels(w, out, step, count, channels, channels);
}

enum { BAND = 256 };            /* channels of a part, whose sums fit a few registers or the nearest cache */
enum { PIECE_CODES = 1 << 22 }; /* codes of a piece of work, if one window has no more */

/* Some windows of a row of the output, and some of their channels. */
typedef struct {
    int64_t row, x, end, channel, channels;
} part;

/* Return the number of parts of a row: one, or few windows and channels in each if all are much work; or one of the parts. */
static int64_t parts_of(const operation *op, int64_t item, part *p) {
    int64_t area = min(op->kernel_h, op->height) * min(op->kernel_w, op->width);
    int64_t band = op->channels, columns = op->out_width;
    if (columns > PIECE_CODES / (area * band)) {
        band = min(band, BAND);
        columns = min(columns, max(1, PIECE_CODES / (area * band)));
    }
    int64_t bands = ceil_div(op->channels, band), parts = ceil_div(op->out_width, columns) * bands;
    int64_t x = item % parts / bands * columns, channel = item % bands * band;
    *p = (part){item / parts, x, min(x + columns, op->out_width), channel, min(band, op->channels - channel)};
    return parts;
}

static int64_t pool_items(const operation *op) {
    part p;
    return row_items(op) * parts_of(op, 0, &p);
}

static void maximum_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    part p;
    parts_of(op, item, &p);
    int64_t n = p.row / op->out_height, y = p.row % op->out_height, run;
    uint8_t *out = (uint8_t *)ROW(output, n, y) + p.x * op->output_pixel + p.channel;
    span down = window_inside(y, op->stride_h, op->pad_h, op->kernel_h, op->height);
    for (int64_t x = p.x; x < p.end; x += run, out += run * op->output_pixel) {
        span right = window_inside(x, op->stride_w, op->pad_w, op->kernel_w, op->width);
        int64_t whole = (op->width + op->pad_w - op->kernel_w) / op->stride_w + 1 - x; /* windows before the right edge */
        run = right.end - right.first == op->kernel_w && down.first < down.end ? min(max(whole, 1), p.end - x) : 1;
        nine window = {.first_step = op->stride_w * op->input_pixel, .step = op->stride_w * op->input_pixel};
        int count = 0, begun = 0;
        for (int64_t i = down.first; i < down.end; i++)
            for (int64_t j = right.first; j < right.end; j++) {
                window.pixels[count++] = ROW(input, n, i) + j * op->input_pixel + p.channel;
                if (count < WINDOW_PIXELS) continue;
                maximum_of_nine(&window, out, op->output_pixel, run, p.channels);
                window.pixels[0] = out, window.first_step = op->output_pixel, count = begun = 1; /* what is known so far */
            }
        if (!count)
            memset(out, 0, p.channels); /* an empty window: the least code */
        else if (count > begun) {
            for (int i = count; i < WINDOW_PIXELS; i++) window.pixels[i] = window.pixels[count - 1];
            maximum_of_nine(&window, out, op->output_pixel, run, p.channels);
        }
    }
}

static void average_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    part p;
    parts_of(op, item, &p);
    int64_t n = p.row / op->out_height, y = p.row % op->out_height;
    uint8_t *out = (uint8_t *)ROW(output, n, y) + p.x * op->output_pixel;
    span down = window_inside(y, op->stride_h, op->pad_h, op->kernel_h, op->height);
    for (int64_t x = p.x; x < p.end; x++, out += op->output_pixel) {
        span right = window_inside(x, op->stride_w, op->pad_w, op->kernel_w, op->width);
        int64_t area = max(down.end - down.first, 0) * max(right.end - right.first, 0);
        finish f = finish_of(op, buffers[op->constants], y * op->out_width + x, 1);
        for (int64_t c = p.channel; c < p.channel + p.channels; c += BAND) {
            int32_t sums[BAND];
            int64_t count = min(BAND, p.channel + p.channels - c);
            for (int64_t k = 0; k < count; k++) sums[k] = (int32_t)(-area * (op->zero_in + STORED_ZERO));
            for (int64_t i = down.first; i < down.end; i++) {
                const uint8_t *in = ROW(input, n, i) + c;
                for (int64_t j = right.first; j < right.end; j++)
                    for (int64_t k = 0; k < count; k++) sums[k] += in[j * op->input_pixel + k];
            }
            for (int64_t k = 0; k < count; k++) out[c + k] = code_of(&f, 0, sums[k]);
        }
    }
}

/* Weighted sum of two blobs, or of one, in whole numbers: |sum| < 2^28 and shift <= 29 keep all of it in 32 bits. */
enum slope { NONE, OF_SUM, OF_ONE }; /* what a leaky ReLU looks at: nothing, the sum, the one input */

#ifdef BLOCKS16
/* The same for BLOCK_CHANNELS codes at a time, in the order of four_codes; return the number of those. */
static inline __attribute__((always_inline)) int64_t weighted_sum_vectors(const operation *op, const uint8_t *a, const uint8_t *b,
                                                                          uint8_t *out, int64_t count, enum slope leaky) {
    int32_t fa = (int32_t)op->factor, fb = (int32_t)op->second_factor, shift = (int32_t)op->shift;
    int32_t na = (int32_t)op->negative_factor, nb = (int32_t)op->negative_second;
    int32_t za = (int32_t)op->zero_in + STORED_ZERO, zb = (int32_t)op->zero_second + STORED_ZERO;
    int32_t half = shift ? 1 << (shift - 1) : 0, carries = shift ? half : INT32_MIN; /* of smaller sums, the half included */
    limits l = limits_of((int)op->zero_out + STORED_ZERO, (int)op->low + STORED_ZERO, (int)op->high + STORED_ZERO);
    int64_t i = 0;
    for (; i + BLOCK_CHANNELS <= count; i += BLOCK_CHANNELS) {
        signed32 x[4], y[4];
        vec whole[4];
        interleave_vectors(load_codes(a + i, BLOCK_CHANNELS), zero(), zero(), zero(), (vec *)x);
        interleave_vectors(load_codes(b + i, BLOCK_CHANNELS), zero(), zero(), zero(), (vec *)y);
        UNROLL for (int q = 0; q < 4; q++) {
            signed32 sum = x[q] * fa + y[q] * fb + (half - za * fa - zb * fb);
            if (leaky) {
                signed32 below = x[q] * na + y[q] * nb + (half - za * na - zb * nb);
                signed32 negative = leaky == OF_ONE ? x[q] < za : sum < half;
                sum = (below & negative) | (sum & ~negative);
            }
            whole[q] = (vec)((sum + (sum < carries)) >> shift);
        }
        store_codes(out + i, pack_codes(&l, whole), BLOCK_CHANNELS);
    }
    return i;
}
#else
static int64_t weighted_sum_vectors(const operation *op, const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count,
                                    enum slope leaky) {
    return (void)op, (void)a, (void)b, (void)out, (void)count, (void)leaky, 0;
}
#endif

static inline __attribute__((always_inline)) void weighted_sum(const operation *op, const uint8_t *a, const uint8_t *b, uint8_t *out,
                                                               int64_t count, enum slope leaky) {
    int32_t fa = (int32_t)op->factor, fb = (int32_t)op->second_factor, shift = (int32_t)op->shift;
    int32_t na = (int32_t)op->negative_factor, nb = (int32_t)op->negative_second;
    int32_t half = shift ? 1 << (shift - 1) : 0, carry = shift != 0, add = (int32_t)op->zero_out;
    int32_t za = (int32_t)op->zero_in + STORED_ZERO, zb = (int32_t)op->zero_second + STORED_ZERO;
    int32_t low = (int32_t)op->low, high = (int32_t)op->high;
    for (int64_t i = weighted_sum_vectors(op, a, b, out, count, leaky); i < count; i++) {
        int32_t x = a[i] - za, y = b[i] - zb, sum = x * fa + y * fb, below = x * na + y * nb;
        sum = leaky && (leaky == OF_ONE ? x : sum) < 0 ? below : sum;
        int32_t value = ((sum + half - (sum < 0 ? carry : 0)) >> shift) + add;
        value = value < low ? low : value > high ? high : value;
        out[i] = (uint8_t)(value + STORED_ZERO);
    }
}

static void sum_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *a = ROW(input, n, y), *b = op->second_factor || op->negative_second ? ROW(second, n, y) : a;
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    int64_t pixel_b = b == a ? op->input_pixel : op->second_pixel, pixels = op->out_width, count = op->channels;
    if (op->input_pixel == count && pixel_b == count && op->output_pixel == count) count *= pixels, pixels = 1;
    for (int64_t x = 0; x < pixels; x++, a += op->input_pixel, b += pixel_b, out += op->output_pixel)
        if (op->negative < 0)
            weighted_sum(op, a, b, out, count, NONE);
        else if (!op->negative)
            weighted_sum(op, a, b, out, count, OF_SUM);
        else
            weighted_sum(op, a, b, out, count, OF_ONE);
}

static void copy_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *in = ROW(input, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x++, in += op->input_pixel, out += op->output_pixel)
        memmove(out, in, op->channels);
}

static void lookup_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *in = ROW(input, n, y), *table = buffers[op->constants] + op->scale;
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    int64_t pixels = op->out_width, count = op->channels;
    if (op->input_pixel == count && op->output_pixel == count) count *= pixels, pixels = 1;
    for (int64_t x = 0; x < pixels; x++, in += op->input_pixel, out += op->output_pixel)
        for (int64_t c = 0; c < count; c++) out[c] = table[in[c]];
}

/* Return the stored code of a value, which is shifted, rounded and clamped. */
static inline uint8_t requantised(const operation *op, int64_t value) {
    int64_t round = op->shift ? (int64_t)1 << (op->shift - 1) : 0, carry = op->shift != 0;
    value = ((value + round - (value < 0 ? carry : 0)) >> op->shift) + op->zero_out;
    value = value < op->low ? op->low : value > op->high ? op->high : value;
    return (uint8_t)(value + STORED_ZERO);
}

/* Codes of two inputs at a time; the second one may have one pixel, for all of the first one. */
static inline __attribute__((always_inline)) void code_pairs_run(const operation *op, uint8_t *const *buffers, int64_t item, int product) {
    int64_t n = item / op->out_height, y = item % op->out_height, fa = op->factor, fb = op->second_factor;
    int64_t za = op->zero_in + STORED_ZERO, zb = op->zero_second + STORED_ZERO;
    const uint8_t *a = ROW(input, n, y), *b = ROW(second, n, y);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x++, a += op->input_pixel, b += op->second_pixel, out += op->output_pixel)
        for (int64_t c = 0; c < op->channels; c++)
            out[c] = requantised(op, product ? (a[c] - za) * (b[c] - zb) * fa : max((a[c] - za) * fa, (b[c] - zb) * fb));
}
static void times_codes_run(const operation *op, uint8_t *const *buffers, int64_t item) { code_pairs_run(op, buffers, item, 1); }
static void greater_codes_run(const operation *op, uint8_t *const *buffers, int64_t item) { code_pairs_run(op, buffers, item, 0); }

static void upsample_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height, spread = !op->negative;
    const uint8_t *in = ROW(input, n, y / op->stride_h);
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x++, out += op->output_pixel)
        if (spread && (y % op->stride_h || x % op->stride_w))
            memset(out, (int)op->zero_in + STORED_ZERO, op->channels);
        else
            memcpy(out, in + x / op->stride_w * op->input_pixel, op->channels);
}

static void interleave_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->out_height, y = item % op->out_height;
    const uint8_t *in = ROW(input, n, y / op->stride_h) + y % op->stride_h * op->stride_w * op->factor;
    uint8_t *out = (uint8_t *)ROW(output, n, y);
    for (int64_t x = 0; x < op->out_width; x++, out += op->output_pixel)
        memcpy(out, in + x / op->stride_w * op->input_pixel + x % op->stride_w * op->factor, op->outputs);
}

static int64_t image_items(const operation *op) { return op->images; }

static void border_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    uint8_t *image = buffers[op->output_buffer] + op->output_offset + item * op->output_image;
    int code = (int)op->zero_out + STORED_ZERO;
    int64_t side = op->pad_w * op->output_pixel, width = op->out_width * op->output_pixel;
    for (int64_t y = -op->pad_h; y < op->out_height + op->pad_h; y++) {
        uint8_t *row = image + y * op->output_row;
        if (y < 0 || y >= op->out_height)
            memset(row - side, code, width + 2 * side);
        else
            memset(row - side, code, side), memset(row + width, code, side);
    }
}
