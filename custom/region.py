"""Region: the last layer of YOLOv2, which turns numbers into probabilities and offsets.

    layer {
      name: "region1"  type: "Region"  bottom: "conv23"  top: "region1"
      user_defined_layer: true
      xcustom_param { float_args: [20, 4, 5, 1] }
    }

Arguments   classes, coords, num (anchors), softmax (1: the classes share one probability, 0: one each, as YOLOv3 has)
Shapes      (N, num * (coords + 1 + classes), H, W) to the same
Formula     for each anchor in turn its channels are x, y, width, height, objectness and the classes: logistic of x, y
            and objectness, softmax over the classes, the rest as it is (forward_region_layer in darknet's
            region_layer.c; Redmon and Farhadi, arXiv:1612.08242, section 2)

RegionOutput makes boxes of it.
"""

import math

import chai


@chai.custom("Region", args={"classes": 20, "coords": 4, "num": 5, "softmax": 1})
def region(x, classes, coords, num, softmax):
    batch, entries = x.input_dims[0][0], coords + 1 + classes
    source = x.in_ptrs[0].reshape((batch * num, entries, -1))
    result = x.out_ptrs[0].reshape((batch * num, entries, -1))
    for anchor in range(batch * num):
        for pixel in range(source.shape[2]):
            v, y = source[anchor, :, pixel], result[anchor, :, pixel]
            for i in range(entries):
                if i < 2 or i == coords or (i > coords and not softmax):
                    y[i] = 0.5 + 0.5 * math.tanh(0.5 * v[i])  # the logistic, which cannot overflow so
                else:
                    y[i] = v[i]
            if softmax:
                largest, total = v[coords + 1 :].max(), 0.0
                for i in range(coords + 1, entries):
                    y[i] = math.exp(v[i] - largest)
                    total += y[i]
                for i in range(coords + 1, entries):
                    y[i] /= total


@region.shape
def shape(x, classes, coords, num):
    dims = x.input_dims[0]
    if len(dims) != 4 or dims[1] != num * (coords + 1 + classes):
        raise ValueError(f"a bottom of {tuple(dims)}; expected (N, {num} * ({coords} + 1 + {classes}), H, W)")
    return [tuple(dims)]
