/* All kernels, compiled once for each instruction set: -DVARIANT=avx2 -DSET='"avx2.h"'. */
#include "chai.h"
#include <string.h>

#include "finish.h"
#include SET
#include "convolution.h"
#include "depthwise.h"
#ifdef BLOCKS16
#include "winograd.h"
#else
static int is_winograd(const operation *op) { return (void)op, 0; }
#define winograd_items convolution_items
#define winograd_run convolution_run
#define winograd_bytes convolution_bytes
#define winograd_pack convolution_pack
#endif
#include "maps.h"
#include "lrn_codes.h"
#include "convert.h"
#include "words.h"
#include "quantize.h"
#include "lrn.h"
#include "float32.h"
#include "planes.h"
#include "elements.h"
#include "pixels.h"
#include "filters.h"
#include "tiles.h"
#include "softmax.h"

static int64_t packed(const operation *op) {
    return op->kind == DEPTHWISE ? depthwise_bytes(op) : is_winograd(op) ? winograd_bytes(op) : convolution_bytes(op);
}

/* Pack weights and bias; return whether float32 holds every sum, and 32 bits every sum times its scale. */
static int pack(const operation *op, const int8_t *weights, int64_t block_outputs, int64_t block_inputs, const int32_t *bias,
                uint8_t *constants) {
    int8_t *packed_weights = (int8_t *)constants + op->weights;
    int32_t *packed_bias = (int32_t *)(constants + op->bias);
    const double *scale = (const double *)(constants + op->scale);
    int narrow = op->kind == DEPTHWISE
                     ? depthwise_pack(op, weights, block_inputs, bias, scale, packed_weights, packed_bias)
                     : (is_winograd(op) ? winograd_pack : convolution_pack)(op, weights, block_outputs, block_inputs, bias,
                                                                            packed_weights, packed_bias);
    return narrow & has_small_scales(op, constants);
}

static int64_t sums_items(const operation *op) { return is_winograd(op) ? winograd_items(op) : convolution_items(op); }
static void sums_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    (is_winograd(op) ? winograd_run : convolution_run)(op, buffers, item);
}

static int64_t products_items(const operation *op) { return is_filter(op) ? planes_items(op) : product_items(op); }
static void products_run(const operation *op, uint8_t *const *buffers, int64_t item) {
    (is_filter(op) ? filter_run : product_run)(op, buffers, item);
}

typedef struct {
    int64_t (*items)(const operation *);
    void (*run)(const operation *, uint8_t *const *, int64_t);
} kernel;

static const kernel kernels[] = {
    [CONVOLUTION] = {sums_items, sums_run},
    [DEPTHWISE] = {depthwise_items, depthwise_run},
    [MAXIMUM] = {pool_items, maximum_run},
    [AVERAGE] = {pool_items, average_run},
    [SUM] = {row_items, sum_run},
    [COPY] = {row_items, copy_run},
    [BORDER] = {image_items, border_run},
    [LOAD] = {row_items, load_run},
    [STORE] = {row_items, store_run},
    [IN_PLACE] = {in_place_items, in_place_run},
    [UNFOLD] = {unfold_items, unfold_run},
    [PRODUCT] = {products_items, products_run},
    [TRANSFORM] = {transform_items, transform_run},
    [TILED] = {tiled_items, tiled_run},
    [LARGEST] = {planes_items, largest_run},
    [TOTAL] = {planes_items, total_run},
    [PACK] = {conversion_items, pack_run},
    [UNPACK] = {conversion_items, unpack_run},
    [ENDS] = {conversion_items, ends_run},
    [LRN] = {lrn_items, lrn_run},
    [SOFTMAX] = {softmax_items, softmax_run},
    [MEAN] = {planes_items, mean_run},
    [PLUS] = {planes_items, plus_run},
    [TIMES] = {planes_items, times_run},
    [GREATER] = {planes_items, greater_run},
    [SCALE] = {planes_items, scale_run},
    [NORMALISE] = {planes_items, normalise_run},
    [LEAKY] = {planes_items, leaky_run},
    [PACK_WORDS] = {to_words_items, pack_words_run},
    [UNPACK_WORDS] = {from_words_items, unpack_words_run},
    [TO_WORDS] = {to_words_items, to_words_run},
    [FROM_WORDS] = {from_words_items, from_words_run},
    [UNFOLD_WORDS] = {unfold_words_items, unfold_words_run},
    [TABLE] = {row_items, table_run},
    [RESIZE] = {resize_items, resize_run},
    [LRN_CODES] = {row_items, lrn_codes_run},
    [LOOKUP] = {row_items, lookup_run},
    [TIMES_CODES] = {row_items, times_codes_run},
    [GREATER_CODES] = {row_items, greater_codes_run},
    [UPSAMPLE] = {row_items, upsample_run},
    [INTERLEAVE] = {row_items, interleave_run},
};

static int64_t items(const operation *op) { return kernels[op->kind].items(op); }
static void run(const operation *op, uint8_t *const *buffers, int64_t item) { kernels[op->kind].run(op, buffers, item); }

int NAMED(usable_, VARIANT)(void);
const variant NAMED(variant_, VARIANT) = {
    QUOTED(VARIANT), NAMED(usable_, VARIANT), packed, pack, quantize, items, run};
