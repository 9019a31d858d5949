/* Pictures, one byte for each channel of a pixel: their codes, and their bilinear resizing as numpy computes it. */
#include <stddef.h>

enum { LEVELS = 256 };          /* of a byte */
enum { RESIZED_ROWS = 32 };     /* in one piece of work */
enum { RESIZED_COLUMNS = 256 }; /* whose sources are determined together */

/* One row of every channel. */
static void table_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t n = item / op->height, y = item % op->height;
    const uint8_t *in = ROW(input, n, y);
    const uint8_t *table = buffers[op->second_buffer] + op->second_offset;
    for (int64_t c = 0; c < op->channels; c++, table += LEVELS) {
        const uint8_t *from = in + c * op->input_channel;
        uint8_t *restrict out = (uint8_t *)ROW(output, n, y) + c * op->output_channel;
        int64_t x = 0;
        if (op->input_pixel == 3)
            for (; x + 8 <= op->width; x += 8, from += 24)
                UNROLL for (int i = 0; i < 8; i++) out[x + i] = table[from[3 * i]];
        for (; x < op->width; x++, from += op->input_pixel) out[x] = table[*from];
    }
}

/* Where a row or column of the result comes from: two neighbours, and the second one's share. */
typedef struct {
    ptrdiff_t first, second;
    float share;
} source;

/* Half-pixel centres and repeated edges. Float64 has the bits of numpy's, as each step is one operation. An axis that keeps its
   size is left as it is. Sizes have 24 bits. */
static inline source source_of(int64_t index, int64_t old_size, int64_t new_size) {
    int32_t at = (int32_t)index, old = (int32_t)old_size, new = (int32_t)new_size;
    if (old == new) return (source){at, at, 0};
    double last = old - 1, centre = (at + 0.5) * ((double)old / new) - 0.5;
    centre = centre > 0 ? centre : 0;
    centre = centre < last ? centre : last;
    int32_t first = (int32_t)centre;
    if (first == old - 1 && first) first--;
    return (source){first, first + (old > 1), (float)(centre - first)};
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_words __attribute__((vector_size(16)));

/* Four bytes as numbers, and the lowest byte of each of four words. Compilers have one good form each. */
#ifdef __clang__
typedef uint8_t four_bytes __attribute__((vector_size(4)));

static inline four four_of(const uint8_t *from) {
    four_bytes all;
    memcpy(&all, from, sizeof all);
    return __builtin_convertvector(__builtin_convertvector(all, four_words), four);
}
static inline void store_lowest(four_words words, uint8_t *out) {
    four_bytes all = __builtin_convertvector(words, four_bytes);
    memcpy(out, &all, sizeof all);
}
#else
static inline four four_of(const uint8_t *from) {
    bytes all = {0};
    memcpy(&all, from, 4);
    all = LOW(all, (bytes){0});
    all = PICK(all, (bytes){0}, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
    return __builtin_convertvector((four_words)all, four);
}
static inline void store_lowest(four_words words, uint8_t *out) {
    bytes all = (bytes)words;
    all = PICK(all, all, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    memcpy(out, &all, 4);
}
#endif

/* 0 to 255 plus this is rounded to an integer, half to even, in the lowest bits. */
static const float ROUNDING = 0x1.8p23f;

static inline uint8_t resized_byte(const uint8_t *a, const uint8_t *b, ptrdiff_t down, float low, float right) {
    float left = (float)a[0] + ((float)a[down] - (float)a[0]) * low, next = (float)b[0] + ((float)b[down] - (float)b[0]) * low;
    float value = left + (next - left) * right + ROUNDING;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint8_t)bits;
}

/* The same for four channels, of which the last belongs to the next pixel. */
static inline void resized_pixel(const uint8_t *a, const uint8_t *b, ptrdiff_t down, float low, float right, uint8_t *out) {
    four left = four_of(a), next = four_of(b);
    left += (four_of(a + down) - left) * low;
    next += (four_of(b + down) - next) * low;
    store_lowest((four_words)(left + (next - left) * right + ROUNDING), out);
}

static int64_t resize_items(const operation *op) { return op->images * ceil_div(op->out_height, RESIZED_ROWS); }

/* Some columns of a row, whose sources are offsets of bytes. ``end`` is the first byte behind the upper row. */
static inline void resize_row(const operation *op, const source *columns, int count, const uint8_t *in, source row, uint8_t *out,
                              const uint8_t *end) {
    ptrdiff_t channels = (ptrdiff_t)op->channels, apart = (ptrdiff_t)op->output_pixel;
    ptrdiff_t down = (row.second - row.first) * (ptrdiff_t)op->input_row;
    int x = 0;
    if (channels == 3 && apart == 3)
        for (; x < count - 1 && in + columns[x].second + 4 <= end; x++, out += 3)
            resized_pixel(in + columns[x].first, in + columns[x].second, down, row.share, columns[x].share, out);
    for (; x < count; x++, out += apart)
        for (ptrdiff_t c = 0; c < channels; c++) {
            const uint8_t *a = in + columns[x].first + c, *b = in + columns[x].second + c;
            out[c] = resized_byte(a, b, down, row.share, columns[x].share);
        }
}

/* kernel_h and kernel_w are the size of the whole picture after it, pad_h and pad_w where the result begins there. */
static void resize_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t pieces = ceil_div(op->out_height, RESIZED_ROWS), n = item / pieces, top = item % pieces * RESIZED_ROWS;
    int64_t length = (op->width - 1) * op->input_pixel + op->channels;
    source columns[RESIZED_COLUMNS];
    for (int64_t left = 0; left < op->out_width; left += RESIZED_COLUMNS) {
        int count = (int)min(op->out_width - left, RESIZED_COLUMNS);
        for (int x = 0; x < count; x++) {
            columns[x] = source_of(op->pad_w + left + x, op->width, op->kernel_w);
            columns[x].first *= (ptrdiff_t)op->input_pixel, columns[x].second *= (ptrdiff_t)op->input_pixel;
        }
        for (int64_t y = top; y < min(top + RESIZED_ROWS, op->out_height); y++) {
            source row = source_of(op->pad_h + y, op->height, op->kernel_h);
            const uint8_t *in = ROW(input, n, 0) + row.first * (ptrdiff_t)op->input_row;
            resize_row(op, columns, count, in, row, (uint8_t *)ROW(output, n, y) + left * op->output_pixel, in + length);
        }
    }
}
