/* Convolutions of 3 x 3 pixels with a quarter of the products: Winograd's F(4 x 4, 3 x 3), in whole numbers.

   Tiles of 4 x 4 output pixels are computed from 6 x 6 input pixels. With B and G below, each channel's tile d and kernel g
   become V = B d B^T and U = G g G^T, 36 numbers each. Matrix products over the channels, one for each of the 36, give M, and
   Y = A M A^T the tile (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015).

   It is exact. The rows of G are multiplied by 4, 6, 6, 24, 24 and 1, so that U is whole: |U| <= 49 * 128 and |V| <= 100 * 128
   have 16 bits. A makes up for it and gives 24 * 24 * Y. Sums may leave 32 bits on the way, as whole numbers modulo 2^32: times
   the inverse of 9 they are 64 * Y, of which the upper 26 bits hold every |Y| < 2^25.

       [group][block of MAX_VECTORS][36][pair of channels][vector][lane][2]

   is the order of U. The instruction set's file defines FEWEST_TILES and FEWEST_CHANNELS, from which on it is faster than other
   blocks, and pairs(sum, codes, weights), which adds two products of 16 bits to each of LANES sums. */

enum {
    SIDE = 4,                  /* rows and columns of a tile of the output */
    REACH = SIDE + 2,          /* rows and columns of the input that it sees */
    POINTS = REACH * REACH,    /* numbers of a transformed tile */
    MAX_CHANNELS16 = 227,      /* channels: 9 * 227 * 128 * 128 < 2^25 */
    DEPTH = 2 * LANES,         /* numbers of 16 bits in a vector */
    PIECE_NUMBERS16 = 1 << 16, /* of the tiles of one piece of work: they stay in the second cache */
    INVERSE9 = 954437177,      /* 9 * INVERSE9 = 1 modulo 2^32 */
};

typedef uint8_t narrow_codes __attribute__((vector_size(DEPTH)));
typedef int16_t codes16 __attribute__((vector_size(2 * DEPTH)));

static int64_t tiles_across(const operation *op) { return ceil_div(op->out_width, SIDE); }
static int64_t tiles_of_image(const operation *op) { return ceil_div(op->out_height, SIDE) * tiles_across(op); }
static int64_t tiles_of(const operation *op) { return op->images * tiles_of_image(op); }

static int is_winograd(const operation *op) {
    int64_t channels = op->channels / op->group;
    int square = op->kernel_h == 3 && op->kernel_w == 3 && op->stride_h == 1 && op->stride_w == 1 && op->dilation_h == 1 &&
                 op->dilation_w == 1;
    return square && channels >= FEWEST_CHANNELS && channels <= MAX_CHANNELS16 && op->outputs / op->group >= 2 * LANES &&
           op->batch * tiles_of_image(op) >= FEWEST_TILES && tiles_of_image(op) * 12 <= op->out_height * op->out_width;
}

/* Return the numbers of a tile at a point, in whole vectors. */
static int64_t depth_of(const operation *op) { return ceil_div(op->channels / op->group, DEPTH) * DEPTH; }
static int64_t pairs_of(const operation *op) { return ceil_div(op->channels / op->group, 2); }

/* Return the pieces of work of a group: a multiple of 4 with about as many tiles each, so that few threads finish together. */
static int64_t winograd_pieces(const operation *op) {
    int64_t fewest = ceil_div(tiles_of(op), PIECE_NUMBERS16 / (POINTS * depth_of(op)));
    return tiles_of(op) < FEWEST_TILES ? fewest : ceil_div(fewest, 4) * 4;
}

static int64_t winograd_items(const operation *op) { return op->group * winograd_pieces(op); }
static int64_t winograd_bytes(const operation *op) { return op->group * vectors_of(op) * POINTS * pairs_of(op) * LANES * 4; }

/* Multiply G by three vectors that are ``step`` apart, to six that are ``apart``. */
static inline __attribute__((always_inline)) void weights_at_points(const signed32 *g, int step, signed32 *u, int apart) {
    signed32 a = g[0], b = g[step], c = g[2 * step];
    u[0] = a, u[apart] = -a - b - c, u[2 * apart] = b - a - c;
    u[3 * apart] = a + 2 * b + 4 * c, u[4 * apart] = a - 2 * b + 4 * c, u[5 * apart] = c;
}

/* Pack U of the weights of ``n`` outputs from ``o`` on of a group, two input channels at once, and their bias; return whether
   float32 holds every sum. */
static inline __attribute__((always_inline)) int pack_points(const operation *op, const weight_view *view, int64_t g, int64_t o,
                                                             int64_t n, int64_t output_stride, const int32_t *bias,
                                                             int8_t *packed, int32_t *packed_bias) {
    int64_t m = op->outputs / op->group, c = op->channels / op->group, pairs = pairs_of(op), vectors = vectors_of(op);
    int64_t v = o / LANES, first = v / MAX_VECTORS * MAX_VECTORS, count = min(MAX_VECTORS, vectors - first);
    int16_t *to = (int16_t *)packed + (g * vectors + first) * POINTS * pairs * LANES * 2 + ((v - first) * LANES + o % LANES) * 2;
    signed32 sum = {0}, magnitude = {0};
    for (int64_t i = 0; i < c; i += 2) {
        signed32 u[2][POINTS];
        for (int j = 0; j < 2; j++) {
            signed32 taps[9] = {{0}}, half[REACH * 3];
            if (i + j < c) {
                const int8_t *w = weights_at(view, g, o, i + j);
                for (int t = 0; t < 9; t++, w += view->block_inputs * view->block_outputs) {
                    taps[t] = lanes_of(w, output_stride, n);
                    sum += taps[t], magnitude += magnitudes_of(taps[t]);
                }
            }
            for (int x = 0; x < 3; x++) weights_at_points(taps + x, 3, half + x, 3);
            for (int y = 0; y < REACH; y++) weights_at_points(half + 3 * y, 1, u[j] + REACH * y, 1);
        }
        for (int p = 0; p < POINTS; p++) {
            signed32 both = (u[0][p] & 0xffff) | u[1][p] << 16;
            memcpy(to + ((p * pairs + i / 2) * count * LANES) * 2, &both, n * 4);
        }
    }
    int narrow = 1;
    for (int64_t k = 0; k < n; k++)
        narrow &= write_bias((weight_sums){sum[k], magnitude[k]}, 0, bias[g * m + o + k], packed_bias + g * m + o + k);
    return narrow;
}

/* Pack U of stored weights, as convolution_pack; return whether float32 holds every sum. */
static int winograd_pack(const operation *op, const int8_t *weights, int64_t block_outputs, int64_t block_inputs,
                         const int32_t *bias, int8_t *packed, int32_t *packed_bias) {
    weight_view w = weight_view_of(op, weights, block_outputs, block_inputs);
    int narrow = 1;
    if (op->outputs / op->group % LANES) memset(packed, 0, winograd_bytes(op)); /* else everything is written */
    for (int64_t g = 0, m = op->outputs / op->group; g < op->group; g++)
        for (int64_t o = 0, n; o < m; o += n) {
            n = outputs_together(&w, o, m);
            if (w.output_stride == 1 && n == LANES)
                narrow &= pack_points(op, &w, g, o, LANES, 1, bias, packed, packed_bias);
            else if (w.output_stride == 1 && LANES > 8 && n == 8)
                narrow &= pack_points(op, &w, g, o, 8, 1, bias, packed, packed_bias);
            else
                narrow &= pack_points(op, &w, g, o, n, w.output_stride, bias, packed, packed_bias);
        }
    return narrow;
}

/* Multiply B by six vectors that are ``step`` apart, to six that are ``apart``. */
static inline __attribute__((always_inline)) void codes_at_points(const codes16 *d, int step, codes16 *v, int64_t apart) {
    codes16 a = d[4 * step] - 4 * d[2 * step], b = d[3 * step] - 4 * d[step];
    codes16 c = d[4 * step] - d[2 * step], e = 2 * (d[3 * step] - d[step]);
    v[0] = 4 * d[0] - 5 * d[2 * step] + d[4 * step];
    v[apart] = a + b, v[2 * apart] = a - b, v[3 * apart] = c + e, v[4 * apart] = c - e;
    v[5 * apart] = 4 * d[step] - 5 * d[3 * step] + d[5 * step];
}

/* Write V of one tile, ``apart`` numbers from each point to the next. Pixels that no output needs are repeated ones. */
static void transform_tile(const operation *op, const uint8_t *image, int64_t y, int64_t x, int64_t channels, int16_t *v,
                           int64_t apart) {
    int64_t rows[REACH], columns[REACH];
    for (int i = 0; i < REACH; i++) {
        rows[i] = (min(y + i, op->out_height + 1) - op->pad_h) * op->input_row;
        columns[i] = (min(x + i, op->out_width + 1) - op->pad_w) * op->input_pixel;
    }
    for (int64_t c = 0; c < channels; c += DEPTH) {
        codes16 half[POINTS], all[POINTS];
        int64_t count = min(DEPTH, channels - c);
        for (int j = 0; j < REACH; j++) {
            codes16 d[REACH];
            for (int i = 0; i < REACH; i++) {
                narrow_codes stored = {0};
                const uint8_t *from = image + rows[i] + columns[j] + c;
                if (count == DEPTH)
                    memcpy(&stored, from, DEPTH);
                else
                    memcpy(&stored, from, count);
                d[i] = __builtin_convertvector(stored, codes16) - STORED_ZERO;
            }
            codes_at_points(d, 1, half + j, REACH);
        }
        for (int i = 0; i < REACH; i++) codes_at_points(half + i * REACH, 1, all + i * REACH, 1);
        for (int p = 0; p < POINTS; p++) memcpy(v + p * apart + c, all + p, sizeof *all);
    }
}

/* Multiply A by six vectors that are ``step`` apart, to four that are ``apart``. */
static inline __attribute__((always_inline)) void sums_of_points(const sums32 *m, int step, sums32 *y, int apart) {
    sums32 a = m[step] + m[2 * step], b = m[step] - m[2 * step], c = m[3 * step] + m[4 * step], d = m[3 * step] - m[4 * step];
    y[0] = 6 * m[0] + 4 * a + c, y[apart] = 4 * b + 2 * d, y[2 * apart] = 4 * (a + c);
    y[3 * apart] = 4 * b + 8 * d + 24 * m[5 * step];
}

/* Write the sums of a tile's pixels, from those at its points, which are ``step`` vectors apart, and the bias. */
static inline void transform_sums(const sums32 *m, int step, signed32 bias, vec *y) {
    sums32 half[SIDE * REACH], all[SIDE * SIDE];
    for (int j = 0; j < REACH; j++) sums_of_points(m + j * step, REACH * step, half + j, REACH);
    for (int i = 0; i < SIDE; i++) sums_of_points(half + i * REACH, 1, all + i * SIDE, 1);
    for (int p = 0; p < SIDE * SIDE; p++) y[p] = (vec)(((signed32)(all[p] * (uint32_t)INVERSE9) >> 6) + bias);
}

/* Sums over the channels of MP tiles and NV vectors of outputs, at one point. */
typedef void point_sums(const int16_t *v, int64_t depth, int64_t count, const int16_t *u, vec *to);

#define POINT_SUMS(MP, NV) \
    static __attribute__((noinline)) void point_sums_##MP##x##NV(const int16_t *v, int64_t depth, int64_t count, \
                                                                 const int16_t *u, vec *to) { \
        vec sums[MP][NV]; \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int n = 0; n < NV; n++) sums[p][n] = zero(); \
        for (int64_t pair = 0; pair < count; pair++, v += 2, u += NV * LANES * 2) { \
            vec weights[NV]; \
            UNROLL for (int n = 0; n < NV; n++) weights[n] = load((const int8_t *)(u + n * LANES * 2)); \
            UNROLL for (int p = 0; p < MP; p++) { \
                vec d = broadcast_pair(v + p * depth); \
                UNROLL for (int n = 0; n < NV; n++) sums[p][n] = pairs(sums[p][n], d, weights[n]); \
            } \
        } \
        UNROLL for (int p = 0; p < MP; p++) UNROLL for (int n = 0; n < NV; n++) to[p * NV + n] = sums[p][n]; \
    }
BLOCKS16(POINT_SUMS)
#define B(MP, NV) {MP, NV, point_sums_##MP##x##NV},
static const struct {
    int tiles, vectors;
    point_sums *sums;
} blocks16[] = {BLOCKS16(B)};
#undef B

typedef struct {
    int64_t n, y, x; /* image and first output pixel */
} tile;

static tile tile_at(const operation *op, int64_t i) {
    int64_t across = tiles_across(op), image = tiles_of_image(op);
    tile t = {i / image, i % image / across * SIDE, i % across * SIDE};
    return t;
}

/* Write one vector of outputs of a tile. */
static void store_tile(const operation *op, const finish *f, const vec *sums, tile t, uint8_t *output) {
    uint8_t beyond[LANES], *out[SIDE * SIDE];
    uint8_t *first = output + t.n * op->output_image + t.y * op->output_row + t.x * op->output_pixel;
    for (int64_t y = 0; y < SIDE; y++)
        for (int64_t x = 0; x < SIDE; x++) {
            int inside = y < op->out_height - t.y && x < op->out_width - t.x;
            out[y * SIDE + x] = inside ? first + y * op->output_row + x * op->output_pixel : beyond;
        }
    if (!store_if_narrow(f, sums, SIDE * SIDE, 1, out)) store(f, sums, SIDE * SIDE, 1, out);
}

static void winograd_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t per = winograd_pieces(op), group = item / per, first = item % per * tiles_of(op) / per;
    int64_t tiles = (item % per + 1) * tiles_of(op) / per - first, depth = depth_of(op), vectors = vectors_of(op);
    int64_t channels = op->channels / op->group, outputs = op->outputs / op->group, pairs = pairs_of(op);
    const uint8_t *constants = buffers[op->constants];
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + group * channels;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + group * outputs;
    int16_t transformed[PIECE_NUMBERS16] __attribute__((aligned(64)));
    unsigned mode = begin_rounding();
    for (int64_t i = 0; i < tiles; i++) {
        tile t = tile_at(op, first + i);
        transform_tile(op, input + t.n * op->input_image, t.y, t.x, channels, transformed + i * depth, tiles * depth);
    }
    const int16_t *u = (const int16_t *)(constants + op->weights) + group * vectors * POINTS * pairs * LANES * 2;
    for (int64_t v = 0, count; v < vectors; v += count, u += count * POINTS * pairs * LANES * 2) {
        count = min(MAX_VECTORS, vectors - v);
        int b = 0;
        while (blocks16[b].vectors != count) b++;
        for (int64_t i = 0; i < tiles; i += blocks16[b].tiles) {
            while (blocks16[b].tiles > tiles - i) b++;
            int step = (int)(blocks16[b].tiles * count);
            vec sums[POINTS * MAX_BLOCK_SUMS16];
            for (int64_t p = 0; p < POINTS; p++)
                blocks16[b].sums(transformed + (p * tiles + i) * depth, depth, pairs, u + p * pairs * count * LANES * 2,
                                 sums + p * step);
            for (int64_t n = 0; n < count; n++) {
                finish f = single_finish_of(op, constants, group * outputs + (v + n) * LANES, outputs - (v + n) * LANES);
                for (int64_t k = 0; k < blocks16[b].tiles; k++) {
                    vec pixels[SIDE * SIDE];
                    transform_sums((const sums32 *)sums + k * count + n, step, (signed32)load_sums(f.bias), pixels);
                    store_tile(op, &f, pixels, tile_at(op, first + i + k), output + (v + n) * LANES);
                }
            }
        }
    }
    end_rounding(mode);
}
