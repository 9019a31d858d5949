/* Conversions between arrays of the host, one plane after the other, and the words of a device's memory: the codes of some channels
   of one pixel. In each, codes are transposed between scratch memory in the nearest cache and the words. */

enum { SCRATCH = 1 << 13 }; /* codes of a piece of work */

/* Write the words of TILE pixels from ``at`` on: of 8 or TILE channels, which are ``count`` rows. */
INLINE void words_of_tile(const uint8_t *const *rows, int count, intptr_t at, uint8_t *out, intptr_t word) {
    bytes a[TILE];
    UNROLL for (int i = 0; i < count; i++) memcpy(&a[i], rows[i] + at, TILE);
    interleave_halves(a, count, count == TILE ? 4 : 3);
    UNROLL for (int p = 0; p < TILE; p++) memcpy(out + p * word, (uint8_t *)a + p * count, count);
}

/* The inverse. */
INLINE void rows_of_tile(const uint8_t *words, intptr_t word, uint8_t *const *rows, int count, intptr_t at) {
    bytes a[TILE];
    UNROLL for (int p = 0; p < TILE; p++) memcpy((uint8_t *)a + p * count, words + p * word, count);
    interleave_halves(a, count, 4);
    UNROLL for (int i = 0; i < count; i++) memcpy(rows[i] + at, &a[i], TILE);
}

/* Convert ``pixels`` words of 8 or TILE channels in tiles, the last of which is shifted back. */
INLINE void tiles_to_words(const uint8_t *const *rows, int count, intptr_t pixels, uint8_t *out, intptr_t word) {
    for (intptr_t p = 0; p < pixels; p += TILE) {
        intptr_t at = p < pixels - TILE ? p : pixels - TILE;
        words_of_tile(rows, count, at, out + at * word, word);
    }
}
INLINE void words_to_tiles(const uint8_t *words, intptr_t word, uint8_t *const *rows, int count, intptr_t pixels) {
    for (intptr_t p = 0; p < pixels; p += TILE) {
        intptr_t at = p < pixels - TILE ? p : pixels - TILE;
        rows_of_tile(words + at * word, word, rows, count, at);
    }
}

/* Write words: out[p * word + c] = rows[c][p]. */
static void to_words(const uint8_t *const *rows, intptr_t pixels, uint8_t *out, intptr_t word) {
    intptr_t c = 0;
    if (pixels >= TILE && word == 8) {
        tiles_to_words(rows, 8, pixels, out, 8);
        return;
    }
    if (pixels >= TILE) {
        for (; c + TILE <= word; c += TILE) tiles_to_words(rows + c, TILE, pixels, out + c, word);
        for (; c + 8 <= word; c += 8) tiles_to_words(rows + c, 8, pixels, out + c, word);
    }
    for (intptr_t p = 0; p < pixels; p++)
        for (intptr_t i = c; i < word; i++) out[p * word + i] = rows[i][p];
}

/* The inverse: rows[c][p] = words[p * word + c]. */
static void from_words(const uint8_t *words, intptr_t word, uint8_t *const *rows, intptr_t pixels) {
    intptr_t c = 0;
    if (pixels >= TILE && word == 8) {
        words_to_tiles(words, 8, rows, 8, pixels);
        return;
    }
    if (pixels >= TILE) {
        for (; c + TILE <= word; c += TILE) words_to_tiles(words + c, word, rows + c, TILE, pixels);
        for (; c + 8 <= word; c += 8) words_to_tiles(words + c, word, rows + c, 8, pixels);
    }
    for (intptr_t p = 0; p < pixels; p++)
        for (intptr_t i = c; i < word; i++) rows[i][p] = words[p * word + i];
}

/* A piece of work: some pixels of one plane of words, or some whole planes, and their channels: the last plane may have fewer than
   a word. Its numbers in an array of the host are ``runs`` of ``length``, which are a plane of that array apart. */
typedef struct {
    int64_t image, plane, planes, channels, pixel, pixels;
    int64_t runs, length;
} piece;

/* Return the pixels of a piece; all of a plane if the scratch memory holds them. */
static inline int64_t pixels_at_once(const operation *op, int64_t word) {
    return min(op->height * op->width, SCRATCH / word / TILE * TILE);
}
static inline int64_t planes_at_once(const operation *op, int64_t word) {
    return max(1, SCRATCH / word / (op->height * op->width));
}

static int64_t words_items(const operation *op, int64_t word) {
    return op->images * ceil_div(ceil_div(op->channels, word), planes_at_once(op, word)) *
           ceil_div(op->height * op->width, pixels_at_once(op, word));
}
static int64_t to_words_items(const operation *op) { return words_items(op, op->output_pixel); }
static int64_t from_words_items(const operation *op) { return words_items(op, op->input_pixel); }

static piece words_piece(const operation *op, int64_t word, int64_t item) {
    int64_t size = op->height * op->width, planes = ceil_div(op->channels, word);
    int64_t most = planes_at_once(op, word), across = pixels_at_once(op, word);
    int64_t groups = ceil_div(planes, most), parts = ceil_div(size, across), group = item / parts;
    piece p;
    p.image = group / groups;
    p.plane = group % groups * most;
    p.planes = min(most, planes - p.plane);
    p.channels = min(p.planes * word, op->channels - p.plane * word);
    p.pixel = item % parts * across;
    p.pixels = min(across, size - p.pixel);
    p.runs = p.pixels == size ? 1 : p.channels;
    p.length = p.pixels == size ? p.channels * size : p.pixels;
    return p;
}

/* The first number of a piece in an array of the host; its first word. */
#define HOST(place) \
    (buffers[op->place##_buffer] + op->place##_offset + p.image * op->place##_image + p.plane * word * op->place##_channel + \
     p.pixel * op->place##_pixel)
#define WORDS(place) \
    (buffers[op->place##_buffer] + op->place##_offset + p.image * op->place##_image + p.plane * op->place##_channel + p.pixel * word)

/* Write the words of a piece, whose channels are ``pitch`` bytes apart; zeros after the last. A table from a stranger may let an
 * operation read what it writes: the codes are any then, but memcpy is not allowed to. */
static void write_words(const operation *op, const piece *p, const uint8_t *codes, intptr_t pitch, uint8_t *out) {
    intptr_t word = op->output_pixel, channels = p->channels;
    uint8_t zeros[SCRATCH];
    const uint8_t *rows[MAX_WORD];
    if (p->pixels == 1 && pitch == 1 && op->output_channel == word) { /* words are as they are there */
        memmove(out, codes, channels);
        memset(out + channels, 0, p->planes * word - channels);
        return;
    }
    if (channels % word) memset(zeros, 0, p->pixels);
    for (; channels > 0; channels -= word, out += op->output_channel) {
        for (intptr_t c = 0; c < word; c++, codes += pitch) rows[c] = c < channels ? codes : zeros;
        to_words(rows, p->pixels, out, word);
    }
}

/* Read the words of a piece. What they have after the last channel is not used. */
static void read_words(const operation *op, const piece *p, const uint8_t *in, uint8_t *codes, intptr_t pitch) {
    intptr_t word = op->input_pixel, channels = p->channels;
    uint8_t unused[SCRATCH], *rows[MAX_WORD];
    if (p->pixels == 1 && pitch == 1 && op->input_channel == word) {
        memmove(codes, in, channels);
        return;
    }
    for (; channels > 0; channels -= word, in += op->input_channel) {
        for (intptr_t c = 0; c < word; c++, codes += pitch) rows[c] = c < channels ? codes : unused;
        from_words(in, word, rows, p->pixels);
    }
}

static void to_words_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t word = op->output_pixel;
    piece p = words_piece(op, word, item);
    write_words(op, &p, HOST(input), op->height * op->width, WORDS(output));
}

static void from_words_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t word = op->input_pixel;
    piece p = words_piece(op, word, item);
    read_words(op, &p, WORDS(input), HOST(output), op->height * op->width);
}

static void pack_words_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    uint8_t scratch[SCRATCH];
    int64_t word = op->output_pixel, size = op->height * op->width;
    piece p = words_piece(op, word, item);
    const float *x = (const float *)HOST(input);
    int wrong = 0;
    for (int64_t i = 0; i < p.runs; i++)
        wrong |= floats_to_codes(x + i * size, p.length, float_of(op->factor), (int32_t)op->low, (int32_t)op->high,
                                 (int32_t)op->zero_out, (int8_t *)scratch + i * p.length);
    if (wrong) note_nan(op, buffers);
    write_words(op, &p, scratch, p.pixels, WORDS(output));
}

static void unpack_words_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    uint8_t scratch[SCRATCH];
    int64_t word = op->input_pixel, size = op->height * op->width;
    piece p = words_piece(op, word, item);
    float *out = (float *)HOST(output);
    read_words(op, &p, WORDS(input), scratch, p.pixels);
    for (int64_t i = 0; i < p.runs; i++)
        codes_to_floats((int8_t *)scratch + i * p.length, p.length, float_of(op->factor), (int32_t)op->zero_in, out + i * size);
}

static int64_t unfold_words_items(const operation *op) {
    band b = band_of(op);
    return op->images * ceil_div(op->out_height, b.rows) * ceil_div(op->out_width, b.columns);
}

/* Write a line: every ``stride``-th pixel of a row of the input from column ``left`` on, and ``zero`` outside the image. */
static inline void write_line(const uint8_t *row, intptr_t left, intptr_t stride, span inside, int zero, uint8_t *out,
                              intptr_t length) {
    intptr_t first = inside.first, end = inside.end;
    if (first >= end) {
        memset(out, zero, length);
        return;
    }
    if (first > 0) memset(out, zero, first);
    if (end < length) memset(out + end, zero, length - end);
    copy_every(row + left + first * stride, stride, out + first, end - first);
}

/* Write the lines that a band sees of ``count`` rows of the input from ``top`` on. */
static void write_lines(const operation *op, const uint8_t *in, const band *b, int64_t top, int64_t left, int64_t count, uint8_t *lines) {
    intptr_t length = b->length, channels = op->channels;
    const span none = {0, 0};
    for (int64_t phase = 0; phase < b->phases; phase++) {
        span across = pixels_inside(left + phase, op->stride_w, op->width, length);
        uint8_t *line = lines + phase * channels * length;
        for (int64_t y = top; y < top + count; y++, line += b->row - channels * length)
            for (intptr_t c = 0; c < channels; c++, line += length) {
                int seen = y >= 0 && y < op->height;
                const uint8_t *row = seen ? in + y * op->input_row + c * op->input_channel : in;
                write_line(row, left + phase, op->stride_w, seen ? across : none, (int)op->zero_in, line, length);
            }
    }
}

/* Write the words of one row of the output. The taps of the kernel's first row see the lines from ``line`` on. */
static void write_taps(const operation *op, const band *b, const uint8_t *line, const uint8_t *zeros, intptr_t columns, uint8_t *out) {
    const uint8_t *taps[MAX_WORD];
    const intptr_t channels = op->channels, length = b->length, phases = b->phases, word = op->output_pixel;
    intptr_t k = 0;
    for (int64_t i = 0; i < op->kernel_h; i++, line += b->row) {
        const uint8_t *tap = line; /* column j sees the line of j modulo the stride, j / stride pixels on */
        for (intptr_t j = op->kernel_w, phase = 0; j > 0; j--) {
            for (intptr_t c = 0; c < channels; c++, tap += length) {
                taps[k++] = tap;
                if (k < word) continue;
                to_words(taps, columns, out, word);
                out += op->output_channel, k = 0;
            }
            if (++phase == phases) phase = 0, tap += 1 - b->row;
        }
    }
    if (!k) return;
    while (k < word) taps[k++] = zeros;
    to_words(taps, columns, out, word);
}

static void unfold_words_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    uint8_t zeros[LINES], *lines;
    band b = band_of(op);
    int64_t bands = ceil_div(op->out_height, b.rows), parts = ceil_div(op->out_width, b.columns), n = item / (bands * parts);
    int64_t top = item / parts % bands * b.rows, left = item % parts * b.columns;
    int64_t rows = min(b.rows, op->out_height - top), columns = min(b.columns, op->out_width - left);
    memset(zeros, 0, b.length);
    lines = zeros + b.length;
    write_lines(op, ROW(input, n, 0), &b, top * op->stride_h - op->pad_h, left * op->stride_w - op->pad_w,
                (rows - 1) * op->stride_h + op->kernel_h, lines);
    for (int64_t y = 0; y < rows; y++)
        write_taps(op, &b, lines + y * op->stride_h * b.row, zeros, columns,
                   (uint8_t *)ROW(output, n, top + y) + left * op->output_pixel);
}
