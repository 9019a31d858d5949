"""gemm: a fully connected layer as a custom layer, the example of CHaiDNN's tutorial.

    layer {
      name: "loss3/classifier"  type: "gemm"  bottom: "pool5/7x7_s1"  top: "loss3/classifier"
      user_defined_layer: true
      xcustom_param { float_args: 1000  top_dim: 1  top_dim: 1000 }
    }

float_args[0] is num_output; the caffemodel has the weights (num_output, K) and the bias (num_output).
"""

import chai


@chai.custom("gemm")
def gemm(x):
    batch = x.input_dims[0][0]
    outputs = int(x.float_args[0])
    length = x.in_ptrs[0].size // batch  # every axis behind the batch is one vector
    weights = x.custom_float_params[0]
    bias = x.custom_float_params[1]
    if weights.size != outputs * length or bias.size != outputs or x.out_ptrs[0].size != batch * outputs:
        raise ValueError("weights, top_dim and float_args do not fit the length of the input")
    for n in range(batch):
        vector = x.in_ptrs[0][n * length : (n + 1) * length]
        result = x.out_ptrs[0][n * outputs : (n + 1) * outputs]
        for m in range(outputs):
            row = weights[m * length : (m + 1) * length]
            total = bias[m]
            for k in range(length):
                total += vector[k] * row[k]
            result[m] = total
