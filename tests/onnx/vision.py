"""The operators of networks of images, by which cases of onnx.backend.test count, and what is known to be refused of them.

They are those of torchvision's and timm's exports and of detectors (YOLO, SSD, RetinaNet), with the operators of opsets before
and after that say the same.
"""

from __future__ import annotations

NAMES = """
Abs Add AveragePool BatchNormalization Cast CastLike Celu Clip Concat Constant ConstantOfShape Conv ConvTranspose
DepthToSpace Div Dropout Elu Erf Exp Expand Flatten Floor Gather Gelu Gemm GlobalAveragePool GlobalMaxPool GridSample
GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax
LpNormalization MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mul Neg PRelu Pad Pow RMSNormalization Range
Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize RoiAlign Selu Shape Sigmoid Size Slice Softmax Softplus Softsign SpaceToDepth Split
Sqrt Squeeze Sub Sum Swish Tanh ThresholdedRelu Tile Transpose Unsqueeze Upsample
"""
OPERATORS = frozenset(NAMES.split())
# operators whose outputs are whole numbers or truth values
CHOICE_NAMES = "ArgMax ArgMin TopK Greater GreaterOrEqual Less LessOrEqual Equal And Or Not IsInf IsNaN"
CHOICES = frozenset(CHOICE_NAMES.split())

# why cases of these operators do not pass: each refusal of such a case has to have one of these texts
REASONS = {
    "is used, which no layer computes": "Mean and InvStdDev of LayerNormalization, indices of pools: outputs for training",
    "mode max": "of RoiAlign, which is the maximum of weighted corners in ONNX, and of samples elsewhere",
    "1 or 2 axes are computed": "convolutions of volumes",
    "training mode": "",
    "the file leaves its size open": "blobs without numbers",
    "without numbers": "blobs without numbers",
    "a size must be at least 1": "blobs without numbers",
    "pieces of": "blobs without numbers",
    "an exponent of": "an exponent per number",
    "its exponent is computed by other nodes": "",
    "inputs of different shapes": "Max and Min that repeat an input",
    "do not agree": "align_corners with a rounded size",
    "computed from constants alone": "Floor and Range of blobs",
    "larger than the kernel reaches": "an output_shape with a border of bias alone",
}
