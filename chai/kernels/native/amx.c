/* Convolution by AMX: products of tiles, which are registers of up to 16 rows of 64 bytes. All else is what BASE does.

   A tile of codes has output pixels as rows and 64 bytes of a run (convolution.h) in each, loaded from where they are: pixels that are
   equally far apart in memory. A tile of weights has the run's dwords as rows, and 4 bytes of 16 outputs in each. One instruction adds
   their products, up to 16384, to a tile of sums, 16 pixels by 16 outputs. A block has two tiles of pixels and two of outputs:

                       weights 6   weights 7
           codes 4      sums 0      sums 1
           codes 5      sums 2      sums 3

   Packed weights are in the order of convolution.h, in blocks of 32 outputs. The dwords of a run are cut into equal steps of 16 at
   most; what a last step has too many are weights of 0, and bytes behind the run, which the check allows for.

   The file of the instruction set (SET) defines the following; amx_plain.h and amx_vnni.h have the instructions in plain C (amx_in_c.h).
     BASE                                     the variant that runs everything else, and whose vectors requantise
     ALLOWED()                                whether the system lets the process use tiles; it is asked once, for the first layer
     TILE_CONFIGURE(64 bytes), TILE_RELEASE() rows and bytes of the tiles; no tiles any more
     TILE_LOAD(tile, first row, stride), TILE_STORE(tile, first row, stride)
     TILE_DOT(sums, codes, weights)           products of unsigned by signed bytes, four of them added to each sum

   A piece of work configures the tiles and releases them: between pieces, where signals are handled and threads sleep, there are none. */
#include "chai.h"
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-function" /* what the kernels of BASE need */
#include "finish.h"
#include SET
#include "convolution.h"

extern const variant NAMED(variant_, BASE);
#define OTHER (NAMED(variant_, BASE))

enum {
    TILE = 16,       /* rows of a tile, and dwords of a row, at most */
    PIECE = 1 << 23, /* products of a piece of work, about: a few microseconds */
};

/* Where the pixels of tiles are. A line are positions at equal distances in the input: pixels of a row of the output, or of the whole
   image with what is between its rows, or of all images if they have one pixel each. */
typedef struct {
    int64_t lines, image_lines;                    /* of all images, and of one */
    int64_t positions, columns, width;             /* of a line; from row to row of the output; of them, those that count */
    int64_t tiles, height;                         /* of a line; positions of each, of which the last one repeats some */
    int64_t image, row, position;                  /* bytes of the input from each to the next */
    int64_t output_image, output_row, output_pixel;
} layout;

static layout layout_of(const operation *op, int64_t images) {
    int64_t row = op->stride_h * op->input_row, position = op->stride_w * op->input_pixel, h = op->out_height, w = op->out_width;
    layout l = {images * h, h, w, w, w, 0, 0, op->input_image, row, position, op->output_image, op->output_row, op->output_pixel};
    if (h * w == 1) {
        l = (layout){1, 1, images, images, images, 0, 0, 0, 0, op->input_image, 0, 0, op->output_image};
    } else if (position && row % position == 0 && row / position >= w) {
        int64_t whole = (h - 1) * (row / position) + w;
        if (ceil_div(whole, TILE) < h * ceil_div(w, TILE))
            l.lines = images, l.image_lines = 1, l.positions = whole, l.columns = row / position;
    }
    l.tiles = ceil_div(l.positions, TILE);
    l.height = ceil_div(l.positions, l.tiles);
    return l;
}

/* Steps of a run, and dwords of each. */
typedef struct {
    int64_t count, dwords;
} steps;

static steps steps_of(runs r) {
    int64_t dwords = ceil_div(r.bytes, 4), count = ceil_div(dwords, TILE);
    return (steps){count, ceil_div(dwords, count)};
}

/* Return the share of the products of whole tiles that are the layer's own. */
static double share_of_tiles(const operation *op) {
    layout l = layout_of(op, op->batch);
    runs r = runs_of(op);
    int64_t outputs = op->outputs / op->group;
    double pixels = (double)op->batch * op->out_height * op->out_width / ((double)l.lines * l.tiles * TILE);
    return pixels * r.bytes / (steps_of(r).count * 4 * TILE) * outputs / (ceil_div(outputs, TILE) * TILE);
}

/* Return whether a convolution takes tiles: the one rule for it. On a Xeon twelve shapes with shares from 7/16 (maps of 7 x 7, row by
   row) to 1 took 2.0 to 4.7 times as long with vectors, and seven 2.5 to 4.1 times as long with Winograd's where that pays.
   Nothing is known of smaller shares. */
static int is_tiled(const operation *op) { return op->kind == CONVOLUTION && share_of_tiles(op) >= 7. / 16 && ALLOWED(); }

static packing tile_packing(const operation *op) {
    runs r = runs_of(op);
    steps s = steps_of(r);
    r.dwords = r.count * s.count * s.dwords;
    return (packing){r, 2 * TILE / LANES, ceil_div(op->outputs / op->group, TILE) * TILE / LANES};
}

static int64_t packed(const operation *op) { return is_tiled(op) ? packed_bytes(op, tile_packing(op)) : OTHER.packed(op); }

static int pack(const operation *op, const int8_t *weights, int64_t block_outputs, int64_t block_inputs, const int32_t *bias,
                uint8_t *constants) {
    if (!is_tiled(op)) return OTHER.pack(op, weights, block_outputs, block_inputs, bias, constants);
    return pack_weights(op, tile_packing(op), weights, block_outputs, block_inputs, bias, (int8_t *)constants + op->weights,
                        (int32_t *)(constants + op->bias)) &
           has_small_scales(op, constants);
}

static int quantize(const float *weights, int64_t rows, int64_t size, const double *steps, int32_t largest, int8_t *codes,
                    int64_t *totals, int64_t *magnitudes, double *errors) {
    return OTHER.quantize(weights, rows, size, steps, largest, codes, totals, magnitudes, errors);
}

/* Return the tiles of pixels of one piece of work: pairs. */
static int64_t piece_tiles(const operation *op) {
    return max(1, PIECE / (tile_packing(op).r.dwords * 4 * TILE * 2 * TILE) / 2) * 2;
}
static int64_t tile_pieces(const operation *op) {
    layout l = layout_of(op, op->images);
    return ceil_div(l.lines * l.tiles, piece_tiles(op));
}
static int64_t tile_items(const operation *op) {
    return op->group * ceil_div(op->outputs / op->group, 2 * TILE) * tile_pieces(op);
}

/* Find a tile's first position, and where the codes of each of its pixels go: ``beyond`` for what is no pixel, and for what the
   tile before has. */
static const uint8_t *place_tile(const layout *l, int64_t tile, const uint8_t *input, uint8_t *output, uint8_t *beyond,
                                 uint8_t **out) {
    int64_t line = tile / l->tiles, own = tile % l->tiles * l->height, first = min(own, l->positions - l->height);
    int64_t image = line / l->image_lines, row = line % l->image_lines;
    for (int64_t i = 0; i < TILE; i++) {
        int64_t position = first + i, y = row + position / l->columns, x = position % l->columns;
        int counts = i < l->height && position >= own && x < l->width;
        out[i] = counts ? output + image * l->output_image + y * l->output_row + x * l->output_pixel : beyond;
    }
    return input + image * l->image + row * l->row + first * l->position;
}

/* Write the sums of a block: [tile of pixels][pixel][output]. */
INLINE void tile_sums(const uint8_t *const *codes, int64_t stride, const int32_t *offsets, runs r, steps s, const int8_t *w,
                      const int32_t *bias, int32_t *sums, int two, int wide) {
    int64_t row = 4 * TILE * (1 + wide), bytes = s.dwords * 4;
    TILE_LOAD(0, bias, 0);
    if (wide) TILE_LOAD(1, bias + TILE, 0);
    if (two) TILE_LOAD(2, bias, 0);
    if (two && wide) TILE_LOAD(3, bias + TILE, 0);
    for (int64_t run = 0; run < r.count; run++) {
        int64_t at = offsets[run], end = at + s.count * bytes;
        for (; at < end; at += bytes, w += s.dwords * row) {
            TILE_LOAD(6, w, row);
            if (wide) TILE_LOAD(7, w + 4 * TILE, row);
            TILE_LOAD(4, codes[0] + at, stride);
            TILE_DOT(0, 4, 6);
            if (wide) TILE_DOT(1, 4, 7);
            if (!two) continue;
            TILE_LOAD(5, codes[1] + at, stride);
            TILE_DOT(2, 5, 6);
            if (wide) TILE_DOT(3, 5, 7);
        }
    }
    TILE_STORE(0, sums, row);
    if (wide) TILE_STORE(1, sums + TILE, row);
    if (two) TILE_STORE(2, sums + TILE * row / 4, row);
    if (two && wide) TILE_STORE(3, sums + TILE * row / 4 + TILE, row);
}

/* Write the codes of a tile of pixels, four pixels at a time. */
INLINE void store_tile(const finish *f, const int32_t *sums, int64_t height, uint8_t *const *out, int wide) {
    enum { FOUR = 4 };
    int vectors = TILE * (1 + wide) / LANES;
    for (int64_t i = 0; i < height; i += FOUR) {
        const vec *four = (const vec *)sums + i * vectors;
        if (!store_if_narrow(f, four, FOUR, vectors, out + i)) store(f, four, FOUR, vectors, out + i);
    }
}

static void configure(int64_t height, int64_t dwords) {
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        tiles.rows[i] = (uint8_t)(i < 6 ? height : dwords);
        tiles.bytes[i] = (uint16_t)(i == 4 || i == 5 ? 4 * dwords : 4 * TILE);
    }
    __asm__ volatile("" ::"r"(&tiles) : "memory"); /* gcc before 14 does not know that the next instruction reads it */
    TILE_CONFIGURE(&tiles);
}

static void tile_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    int64_t pieces = tile_pieces(op), outputs = op->outputs / op->group, blocks = ceil_div(outputs, 2 * TILE);
    int64_t group = item / pieces / blocks, first = item / pieces % blocks * 2 * TILE, channel = group * outputs + first;
    int wide = outputs - first > TILE;
    layout l = layout_of(op, op->images);
    packing p = tile_packing(op);
    steps s = steps_of(p.r);
    int32_t offsets[MAX_TAPS];
    offsets_of(op, p.r, offsets);
    const uint8_t *constants = buffers[op->constants];
    const int8_t *weights =
        (const int8_t *)constants + op->weights + (group * p.vectors + first / LANES) * p.r.dwords * LANES * 4;
    const uint8_t *input = buffers[op->input_buffer] + op->input_offset + group * (op->channels / op->group) -
                           op->pad_h * op->input_row - op->pad_w * op->input_pixel;
    uint8_t *output = buffers[op->output_buffer] + op->output_offset + channel, beyond[2 * TILE], *out[2][TILE];
    finish f = single_finish_of(op, constants, channel, min(outputs - first, 2 * TILE));
    int32_t sums[2 * TILE * 2 * TILE] __attribute__((aligned(64)));
    unsigned mode = begin_rounding();
    configure(l.height, s.dwords);
    int64_t tile = item % pieces * piece_tiles(op), end = min(tile + piece_tiles(op), l.lines * l.tiles);
    for (; tile < end; tile += 2) {
        const uint8_t *codes[2];
        int count = tile + 1 < end ? 2 : 1;
        for (int i = 0; i < count; i++) codes[i] = place_tile(&l, tile + i, input, output, beyond, out[i]);
        if (wide && count == 2)
            tile_sums(codes, l.position, offsets, p.r, s, weights, f.bias, sums, 1, 1);
        else if (wide)
            tile_sums(codes, l.position, offsets, p.r, s, weights, f.bias, sums, 0, 1);
        else if (count == 2)
            tile_sums(codes, l.position, offsets, p.r, s, weights, f.bias, sums, 1, 0);
        else
            tile_sums(codes, l.position, offsets, p.r, s, weights, f.bias, sums, 0, 0);
        for (int i = 0; i < count; i++)
            if (wide)
                store_tile(&f, sums + i * TILE * 2 * TILE, l.height, out[i], 1);
            else
                store_tile(&f, sums + i * TILE * TILE, l.height, out[i], 0);
    }
    TILE_RELEASE();
    end_rounding(mode);
}

static int64_t items(const operation *op) { return is_tiled(op) ? tile_items(op) : OTHER.items(op); }
static void run(const operation *op, uint8_t *const *buffers, int64_t item) {
    (is_tiled(op) ? tile_run : OTHER.run)(op, buffers, item);
}

int NAMED(usable_, VARIANT)(void);
const variant NAMED(variant_, VARIANT) = {QUOTED(VARIANT), NAMED(usable_, VARIANT), packed, pack, quantize, items, run};
