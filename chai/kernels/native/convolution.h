/* Convolution as an implicit matrix product, for the vectors of one instruction set.

   A block is MP pixels x NV vectors of output channels: MP * NV sums stay in registers while the input's dwords (4 channels
   of one pixel, broadcast to all lanes) meet the weights of those outputs. Weights are packed in that order, once:

       [group][block of NV vectors][run][dword][vector][lane][4]

   The instruction set's file defines OFFSET, what its dot adds to a stored code (AT or 0; the bias takes it off), LANES,
   vec, panel, dword, zero(), load(weights), gather(sums), splat(bytes), dot(sum, dword, panel), stored(...), store(...),
   begin_rounding() and end_rounding(mode) around them, and BLOCKS, the block sizes whose sums fit its registers: for each number of vectors some numbers of pixels, largest first, ending in 1. */

#define WIDEST 16 /* pixels of a block, at most */

typedef int32_t signed32 __attribute__((vector_size(4 * LANES)));

typedef void block(const uint8_t *const *, const int32_t *, runs, const int8_t *, const finish *, uint8_t *const *);

#define BLOCK(MP, NV) \
    static __attribute__((noinline)) void sums_##MP##x##NV(const uint8_t *const *pixels, const int32_t *offsets, runs r, \
                                                           const int8_t *w, const finish *f, uint8_t *const *out) { \
        vec sums[MP][NV]; \
        const uint8_t *x[MP]; \
        UNROLL for (int p = 0; p < MP; p++) x[p] = pixels[p]; \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int v = 0; v < NV; v++) sums[p][v] = gather(f->bias + v * LANES); \
        for (int64_t run = 0; run < r.count; run++) { \
            int64_t at = offsets[run], end = at + r.bytes; \
            for (; at < end; at += 4, w += NV * LANES * 4) { \
                panel weights[NV]; \
                UNROLL for (int v = 0; v < NV; v++) weights[v] = load(w + v * LANES * 4); \
                UNROLL for (int p = 0; p < MP; p++) { \
                    dword d = splat(x[p] + at); \
                    UNROLL for (int v = 0; v < NV; v++) sums[p][v] = dot(sums[p][v], d, weights[v]); \
                } \
            } \
        } \
        if (stored(f, sums[0], MP, NV, out)) return; \
        vec all[MP * NV]; \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int v = 0; v < NV; v++) all[p * NV + v] = sums[p][v]; \
        store(f, all, MP, NV, out); \
    }
#define B(MP, NV) BLOCK(MP, NV)
BLOCKS(B)
#undef B
#define B(MP, NV) {MP, NV, sums_##MP##x##NV},
static const struct {
    int pixels, vectors;
    block *sums;
} blocks[] = {BLOCKS(B)};
#undef B
enum { KINDS = sizeof blocks / sizeof *blocks };

static int64_t pixels_of(const operation *op) { return op->images * op->out_height * op->out_width; }
static int64_t vectors_of(const operation *op) { return ceil_div(op->outputs / op->group, LANES); }

/* Return the index of the largest block of this many vectors with at most so many pixels. */
static int block_of(int64_t vectors, int64_t pixels) {
    int i = 0;
    while (blocks[i].vectors != vectors || blocks[i].pixels > pixels) i++;
    return i;
}

/* Return the time of all pixels with blocks of this many vectors: a dot per sum, a load per pixel and vector, and per sum
   the time to requantise it, in cycles of one dot. */
static int64_t cost(int64_t pixels, int64_t vectors, int64_t dwords) {
    int64_t total = 0;
    for (int i = block_of(vectors, pixels); pixels > 0; i++) {
        if (blocks[i].vectors != vectors) break;
        int64_t sums = blocks[i].pixels * vectors, count = pixels / blocks[i].pixels;
        total += count * (dwords * most(LATENCY, sums + (blocks[i].pixels + vectors) / 4) + sums * 12 + 30);
        pixels -= count * blocks[i].pixels;
    }
    return total;
}

/* Return the vectors per block that cost least; the last block of a group has the rest. */
static int64_t block_vectors(const operation *op) {
    int64_t all = vectors_of(op), dwords = runs_of(op).dwords, pixels = least(op->batch * op->out_height * op->out_width, 4096), best = 1, low = -1;
    for (int64_t n = 1; n <= least(all, WIDE); n++) {
        int64_t c = all / n * cost(pixels, n, dwords) + (all % n ? cost(pixels, all % n, dwords) : 0);
        if (low < 0 || c < low) best = n, low = c;
    }
    return best;
}

/* Return the pixels of one piece of work: about 2 million products. */
static int64_t piece(const operation *op) {
    int64_t pixel = runs_of(op).dwords * 4 * LANES * block_vectors(op);
    return most(48, (1 << 21) / pixel / 48 * 48); /* 48 is a multiple of most blocks' pixels */
}

static int64_t convolution_items(const operation *op) {
    return op->group * ceil_div(vectors_of(op), block_vectors(op)) * ceil_div(pixels_of(op), piece(op));
}

static int64_t convolution_bytes(const operation *op) {
    return op->group * vectors_of(op) * runs_of(op).dwords * LANES * 4;
}

/* What is known of an output's weights: their sum, and that of their sizes. */
typedef struct {
    int64_t sum, size;
} weighed;

/* Write an output's bias, which takes off what its product adds to codes; return whether float32 holds every sum for codes from -128
   to 127. */
static int bias_in(weighed w, int64_t offset, int32_t bias, int32_t *to) {
    int64_t above = (w.size + w.sum) / 2, below = (w.size - w.sum) / 2; /* weights above and below 0 */
    *to = (int32_t)(bias - offset * w.sum);
    return bias + 127 * above + 128 * below <= 1 << 24 && bias - 128 * above - 127 * below >= -(1 << 24);
}

/* Weights (M, C / group, kh, kw) as they are stored: in blocks of ``outputs`` x ``inputs`` channels (1 x 1: row by row). */
typedef struct {
    const int8_t *from;
    int64_t outputs, inputs, blocks_out, blocks_in, taps;
    int64_t apart; /* bytes from an output to the next one, of a block or of all that are stored row by row */
} given_weights;

static given_weights given_as(const operation *op, const int8_t *from, int64_t outputs, int64_t inputs) {
    int64_t taps = op->kernel_h * op->kernel_w, blocks_in = ceil_div(op->channels / op->group, inputs);
    return (given_weights){from,
                    outputs,
                    inputs,
                    ceil_div(op->outputs / op->group, outputs),
                    blocks_in,
                    taps,
                    outputs > 1 ? 1 : blocks_in * taps * inputs};
}

/* Return the weights of a group's output ``o`` for input channel ``i``. The outputs of a block follow it, the next tap comes after
   outputs * inputs. */
static const int8_t *given_at(const given_weights *s, int64_t g, int64_t o, int64_t i) {
    int64_t block = (g * s->blocks_out + o / s->outputs) * s->blocks_in + i / s->inputs;
    return s->from + (block * s->taps * s->inputs + i % s->inputs) * s->outputs + o % s->outputs;
}

/* Return how many outputs from ``o`` on, of ``m``, are together in a stored block, if there are such, and in a vector. */
static int64_t outputs_together(const given_weights *s, int64_t o, int64_t m) {
    int64_t block = s->outputs > 1 ? s->outputs - o % s->outputs : m;
    return least(m - o, least(block, LANES - o % LANES));
}

/* Return ``n`` weights that follow each other, one in each lane, and 0 in the lanes beyond. */
static inline __attribute__((always_inline)) signed32 adjacent_lanes(const int8_t *w, int64_t n) {
#ifdef WIDENED
    return (signed32)widened(w, n);
#else
    signed32 lanes = {0};
    for (int64_t k = 0; k < n; k++) lanes[k] = w[k];
    return lanes;
#endif
}

/* Return ``n`` weights that are ``apart`` bytes from each other, likewise. */
static inline __attribute__((always_inline)) signed32 lanes_of(const int8_t *w, int64_t apart, int64_t n) {
    if (apart == 1) return adjacent_lanes(w, n);
    int8_t few[LANES] = {0};
    for (int64_t k = 0; k < n; k++) few[k] = w[k * apart];
    return adjacent_lanes(few, LANES);
}

static inline signed32 sizes_of(signed32 w) {
    signed32 sign = w >> 31;
    return (w ^ sign) - sign;
}

/* Return whether channels are packed one by one: their number is no multiple of 4, and they follow each other in a row of the kernel,
   so that those of a dword belong to several columns. */
static int one_by_one(const operation *op, runs r) {
    int64_t c = op->channels / op->group;
    return op->kernel_w > 1 && r.bytes == c * op->kernel_w && c % 4;
}

/* Pack the weights of ``n`` outputs from ``o`` on of a group, and their bias; return whether float32 holds every sum. */
static inline __attribute__((always_inline)) int pack_outputs(const operation *op, const given_weights *s, runs r, int64_t g, int64_t o,
                                                              int64_t n, int64_t apart, const int32_t *bias, int8_t *to,
                                                              int32_t *packed_bias) {
    int64_t m = op->outputs / op->group, c = op->channels / op->group, kh = op->kernel_h, kw = op->kernel_w;
    int64_t wide = block_vectors(op), vectors = vectors_of(op), run = ceil_div(r.bytes, 4), panel = r.dwords * LANES * 4;
    int64_t v = o / LANES, first = v / wide * wide, count = least(wide, vectors - first), tap = s->inputs * s->outputs;
    int8_t *base = to + (g * vectors + first) * panel + ((v - first) * LANES + o % LANES) * 4;
    int row = r.bytes == c * kw && r.count == kh, single = one_by_one(op, r);
    signed32 sum = {0}, size = {0};
    for (int64_t i = 0; i < c; i += single ? 1 : 4) {
        const int8_t *w[4];
        int64_t together = single ? 1 : least(4, c - i), close = s->inputs - i % s->inputs;
        for (int64_t j = 0; j < together; j++) w[j] = j && j < close ? w[0] + j * s->outputs : given_at(s, g, o, i + j);
        for (int64_t y = 0; y < kh; y++)
            for (int64_t x = 0; x < kw; x++) {
                int64_t byte = row ? x * c + i : i, d = (row ? y : y * kw + x) * run + byte / 4, t = (y * kw + x) * tap;
                int8_t *at = base + d * count * LANES * 4;
                signed32 dwords = {0}, before = {0};
                UNROLL for (int j = 0; j < 4; j++)
                    if (j < together) {
                        signed32 one = lanes_of(w[j] + t, apart, n);
                        sum += one, size += sizes_of(one);
                        dwords |= (one & 255) << 8 * j;
                    }
                if (single) {
                    memcpy(&before, at, n * 4);
                    dwords = before | dwords << byte % 4 * 8;
                }
                memcpy(at, &dwords, n * 4);
            }
    }
    int narrow = 1;
    for (int64_t k = 0; k < n; k++)
        narrow &= bias_in((weighed){sum[k], size[k]}, OFFSET, bias[g * m + o + k], packed_bias + g * m + o + k);
    return narrow;
}

/* Pack stored weights and the bias; return whether float32 holds every sum. */
static int convolution_pack(const operation *op, const int8_t *from, int64_t outputs, int64_t inputs, const int32_t *bias,
                            int8_t *to, int32_t *packed_bias) {
    given_weights s = given_as(op, from, outputs, inputs);
    runs r = runs_of(op);
    int narrow = 1;
    if (one_by_one(op, r) || op->outputs / op->group % LANES) memset(to, 0, convolution_bytes(op)); /* else everything is written */
    for (int64_t g = 0, m = op->outputs / op->group; g < op->group; g++)
        for (int64_t o = 0, n; o < m; o += n) {
            n = outputs_together(&s, o, m);
            if (s.apart == 1 && n == LANES) /* constants make vectors of the loops */
                narrow &= pack_outputs(op, &s, r, g, o, LANES, 1, bias, to, packed_bias);
            else if (s.apart == 1 && LANES > 8 && n == 8)
                narrow &= pack_outputs(op, &s, r, g, o, 8, 1, bias, to, packed_bias);
            else if (n == LANES)
                narrow &= pack_outputs(op, &s, r, g, o, LANES, s.apart, bias, to, packed_bias);
            else
                narrow &= pack_outputs(op, &s, r, g, o, n, s.apart, bias, to, packed_bias);
        }
    return narrow;
}

/* Pixels in order, of all images: the input of the first tap and the output. */
typedef struct {
    const uint8_t *input;
    uint8_t *output;
    int64_t n, y, x;
} cursor;

static void seek(cursor *c, const operation *op, const uint8_t *input, uint8_t *output) {
    c->input = input + c->n * op->input_image + (c->y * op->stride_h - op->pad_h) * op->input_row +
               (c->x * op->stride_w - op->pad_w) * op->input_pixel;
    c->output = output + c->n * op->output_image + c->y * op->output_row + c->x * op->output_pixel;
}

static cursor cursor_at(const operation *op, int64_t pixel, const uint8_t *input, uint8_t *output) {
    int64_t size = op->out_height * op->out_width;
    cursor c = {0, 0, pixel / size, pixel % size / op->out_width, pixel % op->out_width};
    seek(&c, op, input, output);
    return c;
}

static void next(cursor *c, const operation *op, const uint8_t *input, uint8_t *output) {
    if (++c->x < op->out_width) {
        c->input += op->stride_w * op->input_pixel;
        c->output += op->output_pixel;
        return;
    }
    c->x = 0;
    if (++c->y == op->out_height) c->y = 0, c->n++;
    seek(c, op, input, output);
}

static void offsets_of(const operation *op, runs r, int32_t *offsets) {
    int64_t columns = r.count / op->kernel_h;
    for (int64_t i = 0; i < r.count; i++)
        offsets[i] = (int32_t)(i / columns * op->dilation_h * op->input_row + i % columns * op->dilation_w * op->input_pixel);
}

static void convolution_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t per = ceil_div(pixels_of(op), piece(op)), wide = block_vectors(op), vectors = vectors_of(op);
    int64_t chunks = ceil_div(vectors, wide), outputs = op->outputs / op->group;
    int64_t group = item / per / chunks, first = item / per % chunks * wide, count = least(wide, vectors - first);
    int64_t pixel = item % per * piece(op), end = least(pixel + piece(op), pixels_of(op));
    runs r = runs_of(op);
    int32_t offsets[TAPS];
    offsets_of(op, r, offsets);
    const uint8_t *constants = buffers[op->constants];
    const int8_t *weights = (const int8_t *)constants + op->weights + (group * vectors + first) * r.dwords * LANES * 4;
    int64_t channel = group * outputs + first * LANES;
    finish f = single_finish_of(op, constants, channel, least(outputs - first * LANES, count * LANES));
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + group * (op->channels / op->group);
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + channel;
    cursor at = cursor_at(op, pixel, input, output);
    const uint8_t *in[WIDEST];
    uint8_t *out[WIDEST];
    unsigned mode = begin_rounding();
    for (int i = block_of(count, end - pixel); pixel < end; pixel += blocks[i].pixels) {
        while (blocks[i].pixels > end - pixel) i++;
        for (int p = 0; p < blocks[i].pixels; p++, next(&at, op, input, output)) in[p] = at.input, out[p] = at.output;
        blocks[i].sums(in, offsets, r, weights, &f, out);
    }
    end_rounding(mode);
}

/* In place: weights in blocks of outputs, in each all blocks of inputs, rows and columns of the kernel, and per input one row
   of weights, as chai/overlay/weights.py packs them. Each weight is read once per pixel: memory is what takes the time. */
static int64_t in_place_items(const operation *op) { return ceil_div(op->outputs, op->block_outputs); }

static inline __attribute__((always_inline)) void add_rows(const uint8_t *in, const int8_t *w, int64_t count, int64_t outputs,
                                                           int32_t *sums) {
    for (int64_t i = 0; i < count; i++) {
        int32_t x = in[i] - AT;
        for (int64_t o = 0; o < outputs; o++) sums[o] += x * w[i * outputs + o];
    }
}

static void in_place_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t wide = op->block_outputs, deep = op->block_inputs, first = item * wide, taps = op->kernel_h * op->kernel_w;
    int64_t count = least(wide, op->outputs - first), deeps = ceil_div(op->channels, deep);
    const int8_t *weights = (const int8_t *)buffers[op->file] + op->weights + item * deeps * taps * deep * wide;
    finish f = finish_of(op, buffers[op->constants], first, count);
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + first;
    cursor at = cursor_at(op, 0, input, output);
    for (int64_t pixel = 0; pixel < pixels_of(op); pixel++, next(&at, op, input, output)) {
        int32_t sums[BLOCK_OUTPUTS];
        const int8_t *w = weights;
        memcpy(sums, f.bias, sizeof sums);
        for (int64_t c = 0; c < op->channels; c += deep)
            for (int64_t t = 0; t < taps; t++, w += deep * wide) {
                const uint8_t *in = at.input + t / op->kernel_w * op->dilation_h * op->input_row +
                                    t % op->kernel_w * op->dilation_w * op->input_pixel + c;
                int64_t rows = least(deep, op->channels - c);
                if (wide == 24) /* a constant, so that the sums stay in registers */
                    add_rows(in, w, rows, 24, sums);
                else if (wide == 16)
                    add_rows(in, w, rows, 16, sums);
                else
                    add_rows(in, w, rows, wide, sums);
            }
        store_pixel(&f, sums, count, at.output);
    }
}
