"""LeakyReLU: y = x above zero, negative_slope * x below; darknet's activation.

    layer {
      name: "relu1"  type: "LeakyReLU"  bottom: "conv1"  top: "conv1"
      user_defined_layer: true
      xcustom_param { float_args: 0.1 }
    }

Arguments   negative_slope
Shapes      any to the same; may be in place, as above
Source      Maas et al., ICML 2013; 0.1 is darknet's slope

A ReLU with relu_param { negative_slope: 0.1 } is the same and runs on the overlay.
"""

import numpy as np

import chai


@chai.custom("LeakyReLU", args={"negative_slope": 0.1}, inplace=True)
def leaky_relu(x, negative_slope):
    y = x.out_ptrs[0]
    for i in range(y.size):
        if y[i] < 0:
            y[i] *= negative_slope


@leaky_relu.impl("numpy", jit=False)
def with_numpy(x, negative_slope):
    y = x.out_ptrs[0]
    choose = np.maximum if negative_slope <= 1 else np.minimum
    choose(y, y * np.float32(negative_slope), out=y)


@leaky_relu.shape
def shape(x):
    return [tuple(x.input_dims[0])]
