"""gemm: a fully connected layer as a custom layer, the example of CHaiDNN's tutorial.

    layer {
      name: "loss3/classifier"  type: "gemm"  bottom: "pool5/7x7_s1"  top: "loss3/classifier"
      user_defined_layer: true
      xcustom_param { float_args: 1000 }
    }

Arguments    num_output
Parameters   weights (num_output, K), and a bias (num_output) if there is one, in caffemodel order
Shapes       (N, ...) to (N, num_output); K is the number of values of one image
Formula      y = W x + b, Caffe's InnerProduct with axis 1

CHaiDNN transposes the weights on every call. Here nothing is transposed: the loops read rows, and BLAS uses the weights
in their stored order.
"""

import chai


@chai.custom("gemm", args={"num_output": int})
def gemm(x, num_output):
    batch = x.input_dims[0][0]
    length = x.in_ptrs[0].size // batch
    weights, bias = x.custom_float_params[0], x.custom_float_params[1]
    if weights.size != num_output * length or bias.size != num_output:
        raise ValueError("the weights do not fit num_output and the length of the input")
    for m in range(num_output):
        row = weights[m * length : (m + 1) * length]
        for n in range(batch):
            vector = x.in_ptrs[0][n * length : (n + 1) * length]
            total = bias[m]
            for k in range(length):
                total += vector[k] * row[k]
            x.out_ptrs[0][n * num_output + m] = total


@gemm.shape
def shape(x, num_output):
    return [(x.input_dims[0][0], num_output)]


@gemm.setup
def without_bias(x, num_output):
    import numpy as np

    if len(x.custom_float_params) == 1:  # bias_term: false
        x.custom_float_params += (np.zeros(num_output, np.float32),)


@gemm.impl("blas", jit=False)
def blas(x, num_output):
    top, weights = x.top[0], x.custom_float_params[0].reshape(num_output, -1)
    top[:] = x.bottom[0].reshape(len(top), -1) @ weights.T
    top += x.custom_float_params[1]
