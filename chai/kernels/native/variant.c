/* All kernels, compiled once for each instruction set: -DVARIANT=avx2 -DSET='"avx2.h"'. */
#include "chai.h"
#include <string.h>

#include "finish.h"
#include SET
#include "convolution.h"
#include "maps.h"
#include "convert.h"
#include "lrn.h"
#include "float32.h"
#include "planes.h"

static int64_t packed(const operation *op) { return op->kind == DEPTHWISE ? depthwise_bytes(op) : convolution_bytes(op); }

static int pack(const operation *op, const int8_t *from, int64_t outputs, int64_t inputs, const int32_t *bias,
                uint8_t *constants) {
    int8_t *to = (int8_t *)constants + op->weights;
    int32_t *packed_bias = (int32_t *)(constants + op->bias);
    return op->kind == DEPTHWISE ? depthwise_pack(op, from, inputs, bias, to, packed_bias)
                                 : convolution_pack(op, from, outputs, inputs, bias, to, packed_bias);
}

typedef struct {
    int64_t (*items)(const operation *);
    void (*run)(const operation *, uint8_t *const *, int64_t);
} kernel;

static const kernel kernels[] = {
    [CONVOLUTION] = {convolution_items, convolution_run},
    [DEPTHWISE] = {depthwise_items, depthwise_run},
    [MAXIMUM] = {rows, maximum_run},
    [AVERAGE] = {rows, average_run},
    [SUM] = {rows, sum_run},
    [COPY] = {rows, copy_run},
    [BORDER] = {images, border_run},
    [LOAD] = {rows, load_run},
    [STORE] = {rows, store_run},
    [IN_PLACE] = {in_place_items, in_place_run},
    [UNFOLD] = {unfold_items, unfold_run},
    [PRODUCT] = {product_items, product_run},
    [LARGEST] = {planes_items, largest_run},
    [TOTAL] = {planes_items, total_run},
};

static int64_t items(const operation *op) { return kernels[op->kind].items(op); }
static void run(const operation *op, uint8_t *const *buffers, int64_t item) { kernels[op->kind].run(op, buffers, item); }

#define JOINED(a, b) a##b
#define NAMED(prefix, name) JOINED(prefix, name)
#define TEXT(name) #name
#define QUOTED(name) TEXT(name)
int NAMED(usable_, VARIANT)(void);
const variant NAMED(variant_, VARIANT) = {
    QUOTED(VARIANT), NAMED(usable_, VARIANT), LANES, packed, pack, items, run, floats_to_codes, codes_to_floats, lrn};
