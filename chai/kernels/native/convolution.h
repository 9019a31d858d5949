/* Convolution as an implicit matrix product, for the vectors of one instruction set.

   A block is MP pixels x NV vectors of LANES output channels. Its MP * NV vectors of sums stay in registers, while each dword
   of the input (4 channels of one pixel, broadcast to all lanes) meets the weights of all outputs of the block:

                              panel 0                    panel NV - 1
                        LANES outputs, 4 bytes each      LANES outputs, 4 bytes each
                       [w w w w][w w w w] ...       ...  [w w w w] ...
        pixel 0    dword     sums[0][0]             ...     sums[0][NV - 1]
        ...         ...         ...                            ...
        pixel MP-1 dword     sums[MP - 1][0]        ...     sums[MP - 1][NV - 1]

   Weights are packed once, in the order in which blocks read them:

       group                   0 | 1 | ...               of the convolution
         block of outputs      NV vectors, the last of a group fewer
           run                 input bytes that follow each other: a row of the kernel or a pixel (runs_of in chai.h)
             dword             4 bytes of the run; weights beyond its end are 0
               panel           one for each of the block's vectors
                 lane          an output
                   4 bytes     its weights for the dword

       packed[group][block][run][dword][panel][lane][byte], without gaps

   The instruction set's file defines
     LANES, MAX_VECTORS         sums in a vector; vectors in a block, at most
     BLOCKS                     block sizes (MP, NV) whose sums fit its registers: for each NV some MP, largest first, ending in 1
     LATENCY                    cycles from a dot to the next one that adds to the same sum
     OFFSET                     what its dot adds to a stored code, STORED_ZERO or 0; the bias takes it off
     vec, panel, dword          a vector of sums, the weights of one vector's outputs, four codes of a pixel
     zero(), load_sums(sums)    a vector of sums
     load(weights)              a panel
     broadcast_dword(codes)     a dword
     dot(sum, dword, panel)     the sum with four products more in each lane
     store(...)                 codes of a block's sums; store_if_narrow(...) from registers, if the sums are narrow (finish.h)
     begin_rounding(), end_rounding(mode)    around them */

#define MAX_BLOCK_PIXELS 16 /* pixels of a block, at most */

typedef int32_t signed32 __attribute__((vector_size(4 * LANES)));

/* Write the codes of a block's pixels. ``pixels`` are those of the first tap, ``offsets`` the bytes from there to each run. */
typedef void block_sums(const uint8_t *const *pixels, const int32_t *offsets, runs r, const int8_t *w, const finish *f,
                        uint8_t *const *out);

#define BLOCK(MP, NV) \
    static __attribute__((noinline)) void sums_##MP##x##NV(const uint8_t *const *pixels, const int32_t *offsets, runs r, \
                                                           const int8_t *w, const finish *f, uint8_t *const *out) { \
        vec sums[MP][NV]; \
        const uint8_t *x[MP]; \
        UNROLL for (int p = 0; p < MP; p++) x[p] = pixels[p]; \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int v = 0; v < NV; v++) sums[p][v] = load_sums(f->bias + v * LANES); \
        for (int64_t run = 0; run < r.count; run++) { \
            int64_t at = offsets[run], end = at + r.bytes; \
            for (; at < end; at += 4, w += NV * LANES * 4) { \
                panel weights[NV]; \
                UNROLL for (int v = 0; v < NV; v++) weights[v] = load(w + v * LANES * 4); \
                UNROLL for (int p = 0; p < MP; p++) { \
                    dword d = broadcast_dword(x[p] + at); \
                    UNROLL for (int v = 0; v < NV; v++) sums[p][v] = dot(sums[p][v], d, weights[v]); \
                } \
            } \
        } \
        if (store_if_narrow(f, sums[0], MP, NV, out)) return; \
        vec all[MP * NV]; \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int v = 0; v < NV; v++) all[p * NV + v] = sums[p][v]; \
        store(f, all, MP, NV, out); \
    }
BLOCKS(BLOCK)
#define B(MP, NV) {MP, NV, sums_##MP##x##NV},
static const struct {
    int pixels, vectors;
    block_sums *sums;
} blocks[] = {BLOCKS(B)};
#undef B

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
        total += count * (dwords * max(LATENCY, sums + (blocks[i].pixels + vectors) / 4) + sums * 12 + 30);
        pixels -= count * blocks[i].pixels;
    }
    return total;
}

/* Return the vectors per block that cost least; the last block of a group has the rest. */
static int64_t block_vectors(const operation *op) {
    int64_t all = vectors_of(op), dwords = runs_of(op).dwords, pixels = min(op->batch * op->out_height * op->out_width, 4096);
    int64_t best = 1, lowest = -1;
    for (int64_t n = 1; n <= min(all, MAX_VECTORS); n++) {
        int64_t c = all / n * cost(pixels, n, dwords) + (all % n ? cost(pixels, all % n, dwords) : 0);
        if (lowest < 0 || c < lowest) best = n, lowest = c;
    }
    return best;
}

/* Return the pixels of one piece of work: about 2 million products. */
static int64_t piece_pixels(const operation *op) {
    int64_t pixel = runs_of(op).dwords * 4 * LANES * block_vectors(op);
    return max(48, (1 << 21) / pixel / 48 * 48); /* 48 is a multiple of most blocks' pixels */
}

static int64_t convolution_items(const operation *op) {
    return op->group * ceil_div(vectors_of(op), block_vectors(op)) * ceil_div(pixels_of(op), piece_pixels(op));
}

/* The order of packed weights: runs, of perhaps more dwords than they need; vectors of a block and of a group. */
typedef struct {
    runs r;
    int64_t block, vectors;
} packing;

static packing convolution_packing(const operation *op) { return (packing){runs_of(op), block_vectors(op), vectors_of(op)}; }
static int64_t packed_bytes(const operation *op, packing p) { return op->group * p.vectors * p.r.dwords * LANES * 4; }
static int64_t convolution_bytes(const operation *op) { return packed_bytes(op, convolution_packing(op)); }

/* Of an output's weights: their sum, and that of their magnitudes. */
typedef struct {
    int64_t sum, magnitude;
} weight_sums;

/* Write an output's bias, which takes off what its product adds to codes; return whether float32 holds every sum for codes from -128
   to 127. */
static int write_bias(weight_sums w, int64_t offset, int32_t bias, int32_t *to) {
    int64_t above = (w.magnitude + w.sum) / 2, below = (w.magnitude - w.sum) / 2; /* weights above and below 0 */
    *to = (int32_t)(bias - offset * w.sum);
    return bias + 127 * above + 128 * below <= 1 << 24 && bias - 128 * above - 127 * below >= -(1 << 24);
}

/* Weights (M, C / group, kh, kw) where they are stored, in blocks of channels (1 x 1: row by row):

       data[group][output block][input block][tap][input of the block][output of the block] */
typedef struct {
    const int8_t *data;
    int64_t block_outputs, block_inputs; /* channels of a block */
    int64_t output_blocks, input_blocks; /* of a group */
    int64_t taps;
    int64_t output_stride; /* bytes from an output to the next one, of a block or of all that are stored row by row */
} weight_view;

static weight_view weight_view_of(const operation *op, const int8_t *data, int64_t block_outputs, int64_t block_inputs) {
    int64_t taps = op->kernel_h * op->kernel_w, input_blocks = ceil_div(op->channels / op->group, block_inputs);
    return (weight_view){
        .data = data,
        .block_outputs = block_outputs,
        .block_inputs = block_inputs,
        .output_blocks = ceil_div(op->outputs / op->group, block_outputs),
        .input_blocks = input_blocks,
        .taps = taps,
        .output_stride = block_outputs > 1 ? 1 : input_blocks * taps * block_inputs,
    };
}

/* Return where the weights of a group's output ``o`` for input channel ``i`` begin. */
static const int8_t *weights_at(const weight_view *w, int64_t g, int64_t o, int64_t i) {
    int64_t block = (g * w->output_blocks + o / w->block_outputs) * w->input_blocks + i / w->block_inputs;
    return w->data + (block * w->taps * w->block_inputs + i % w->block_inputs) * w->block_outputs + o % w->block_outputs;
}

/* Return how many outputs from ``o`` on, of ``m``, are together in a stored block, if there are such, and in a vector. */
static int64_t outputs_together(const weight_view *w, int64_t o, int64_t m) {
    int64_t block = w->block_outputs > 1 ? w->block_outputs - o % w->block_outputs : m;
    return min(m - o, min(block, LANES - o % LANES));
}

/* Return ``n`` weights that follow each other, one in each lane, and 0 in the lanes beyond. */
static inline __attribute__((always_inline)) signed32 adjacent_lanes(const int8_t *w, int64_t n) {
#ifdef HAS_WIDEN
    return (signed32)widen(w, n);
#else
    signed32 lanes = {0};
    for (int64_t k = 0; k < n; k++) lanes[k] = w[k];
    return lanes;
#endif
}

/* Return ``n`` weights that are ``stride`` bytes from each other, likewise. */
static inline __attribute__((always_inline)) signed32 lanes_of(const int8_t *w, int64_t stride, int64_t n) {
    if (stride == 1) return adjacent_lanes(w, n);
    int8_t lanes[LANES] = {0};
    for (int64_t k = 0; k < n; k++) lanes[k] = w[k * stride];
    return adjacent_lanes(lanes, LANES);
}

static inline signed32 magnitudes_of(signed32 w) {
    signed32 sign = w >> 31;
    return (w ^ sign) - sign;
}

/* Return whether channels are packed one by one: their number is no multiple of 4, and they follow each other in a row of the kernel,
   so that those of a dword belong to several columns. */
static int packs_single_channels(const operation *op, runs r) {
    int64_t c = op->channels / op->group;
    return op->kernel_w > 1 && r.bytes == c * op->kernel_w && c % 4;
}

/* Pack the weights of ``n`` outputs from ``o`` on of a group, and their bias; return whether float32 holds every sum.

   Four input channels of a tap are a dword of each output, or single ones a byte of it. */
static inline __attribute__((always_inline)) int pack_outputs(const operation *op, const weight_view *view, packing order, int64_t g,
                                                              int64_t o, int64_t n, int64_t output_stride, const int32_t *bias,
                                                              int8_t *packed, int32_t *packed_bias) {
    int64_t m = op->outputs / op->group, c = op->channels / op->group, kh = op->kernel_h, kw = op->kernel_w;
    runs r = order.r;
    int64_t run = r.dwords / r.count, panels = r.dwords * LANES * 4;
    int64_t v = o / LANES, first = v / order.block * order.block, count = min(order.block, order.vectors - first);
    int64_t tap_stride = view->block_inputs * view->block_outputs;
    int8_t *base = packed + (g * order.vectors + first) * panels + ((v - first) * LANES + o % LANES) * 4;
    int rows = r.bytes == c * kw && r.count == kh, single = packs_single_channels(op, r); /* rows of the kernel are runs */
    signed32 sum = {0}, magnitude = {0};
    for (int64_t i = 0; i < c; i += single ? 1 : 4) {
        const int8_t *w[4]; /* weights of the dword's channels */
        int64_t channels = single ? 1 : min(4, c - i), left = view->block_inputs - i % view->block_inputs; /* of their block */
        for (int64_t j = 0; j < channels; j++)
            w[j] = j && j < left ? w[0] + j * view->block_outputs : weights_at(view, g, o, i + j);
        for (int64_t y = 0; y < kh; y++)
            for (int64_t x = 0; x < kw; x++) {
                int64_t byte = rows ? x * c + i : i, d = (rows ? y : y * kw + x) * run + byte / 4, t = (y * kw + x) * tap_stride;
                int8_t *to = base + d * count * LANES * 4;
                signed32 dwords = {0}, before = {0};
                UNROLL for (int j = 0; j < 4; j++)
                    if (j < channels) {
                        signed32 lanes = lanes_of(w[j] + t, output_stride, n);
                        sum += lanes, magnitude += magnitudes_of(lanes);
                        dwords |= (lanes & 255) << 8 * j;
                    }
                if (single) {
                    memcpy(&before, to, n * 4);
                    dwords = before | dwords << byte % 4 * 8;
                }
                memcpy(to, &dwords, n * 4);
            }
    }
    int narrow = 1;
    for (int64_t k = 0; k < n; k++)
        narrow &= write_bias((weight_sums){sum[k], magnitude[k]}, OFFSET, bias[g * m + o + k], packed_bias + g * m + o + k);
    return narrow;
}

/* Pack weights that are stored in blocks of channels, and the bias; return whether float32 holds every sum. */
static int pack_weights(const operation *op, packing p, const int8_t *weights, int64_t block_outputs, int64_t block_inputs,
                        const int32_t *bias, int8_t *packed, int32_t *packed_bias) {
    weight_view w = weight_view_of(op, weights, block_outputs, block_inputs);
    int narrow = 1;
    if (packs_single_channels(op, p.r) || p.vectors * LANES > op->outputs / op->group || p.r.dwords > runs_of(op).dwords)
        memset(packed, 0, packed_bytes(op, p)); /* else everything is written */
    for (int64_t g = 0, m = op->outputs / op->group; g < op->group; g++)
        for (int64_t o = 0, n; o < m; o += n) {
            n = outputs_together(&w, o, m);
            if (w.output_stride == 1 && n == LANES) /* constants make vectors of the loops */
                narrow &= pack_outputs(op, &w, p, g, o, LANES, 1, bias, packed, packed_bias);
            else if (w.output_stride == 1 && LANES > 8 && n == 8)
                narrow &= pack_outputs(op, &w, p, g, o, 8, 1, bias, packed, packed_bias);
            else if (n == LANES)
                narrow &= pack_outputs(op, &w, p, g, o, LANES, w.output_stride, bias, packed, packed_bias);
            else
                narrow &= pack_outputs(op, &w, p, g, o, n, w.output_stride, bias, packed, packed_bias);
        }
    return narrow;
}

static int convolution_pack(const operation *op, const int8_t *weights, int64_t block_outputs, int64_t block_inputs,
                            const int32_t *bias, int8_t *packed, int32_t *packed_bias) {
    return pack_weights(op, convolution_packing(op), weights, block_outputs, block_inputs, bias, packed, packed_bias);
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
    int64_t pieces = ceil_div(pixels_of(op), piece_pixels(op)), block = block_vectors(op), vectors = vectors_of(op);
    int64_t output_blocks = ceil_div(vectors, block), outputs = op->outputs / op->group;
    int64_t group = item / pieces / output_blocks, first = item / pieces % output_blocks * block;
    int64_t count = min(block, vectors - first);
    int64_t pixel = item % pieces * piece_pixels(op), end = min(pixel + piece_pixels(op), pixels_of(op));
    runs r = runs_of(op);
    int32_t offsets[MAX_TAPS];
    offsets_of(op, r, offsets);
    const uint8_t *constants = buffers[op->constants];
    const int8_t *weights = (const int8_t *)constants + op->weights + (group * vectors + first) * r.dwords * LANES * 4;
    int64_t channel = group * outputs + first * LANES;
    finish f = single_finish_of(op, constants, channel, min(outputs - first * LANES, count * LANES));
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + group * (op->channels / op->group);
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + channel;
    cursor at = cursor_at(op, pixel, input, output);
    const uint8_t *in[MAX_BLOCK_PIXELS];
    uint8_t *out[MAX_BLOCK_PIXELS];
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
        int32_t x = in[i] - STORED_ZERO;
        for (int64_t o = 0; o < outputs; o++) sums[o] += x * w[i * outputs + o];
    }
}

static void in_place_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t outputs = op->block_outputs, inputs = op->block_inputs, first = item * outputs, taps = op->kernel_h * op->kernel_w;
    int64_t count = min(outputs, op->outputs - first), input_blocks = ceil_div(op->channels, inputs);
    const int8_t *weights = (const int8_t *)buffers[op->file] + op->weights + item * input_blocks * taps * inputs * outputs;
    finish f = finish_of(op, buffers[op->constants], first, count);
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + first;
    cursor at = cursor_at(op, 0, input, output);
    for (int64_t pixel = 0; pixel < pixels_of(op); pixel++, next(&at, op, input, output)) {
        int32_t sums[MAX_BLOCK_OUTPUTS];
        const int8_t *w = weights;
        memcpy(sums, f.bias, sizeof sums);
        for (int64_t c = 0; c < op->channels; c += inputs)
            for (int64_t t = 0; t < taps; t++, w += inputs * outputs) {
                const uint8_t *in = at.input + t / op->kernel_w * op->dilation_h * op->input_row +
                                    t % op->kernel_w * op->dilation_w * op->input_pixel + c;
                int64_t rows = min(inputs, op->channels - c);
                if (outputs == 24) /* a constant, so that the sums stay in registers */
                    add_rows(in, w, rows, 24, sums);
                else if (outputs == 16)
                    add_rows(in, w, rows, 16, sums);
                else
                    add_rows(in, w, rows, outputs, sums);
            }
        store_pixel(&f, sums, count, at.output);
    }
}
