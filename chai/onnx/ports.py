"""The number of inputs that each operator has: a further one would say something that no layer does."""

from __future__ import annotations

from .read import NodeRecord
from .refusal import Refused

_MOST = {  # of any opset; operators that are not here have one
    2: "Add And CastLike Div Equal Expand Gather Greater GreaterOrEqual GridSample Less LessOrEqual MatMul Mod Mul Or PRelu Pow "
    "RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare Reshape Split Squeeze Sub Tile TopK Unsqueeze Upsample Xor",
    3: "Clip Conv ConvTranspose DequantizeLinear Dropout Gemm GroupNormalization InstanceNormalization LayerNormalization "
    "QuantizeLinear Range RoiAlign Where",
    4: "Pad Resize",
    5: "BatchNormalization QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearSigmoid QLinearSoftmax Slice",
    8: "QLinearAdd QLinearMatMul QLinearMul",
    9: "QGemm QLinearConv",
    2**31: "Concat Max Mean Min QLinearConcat Sum",
}
MOST = {operator: count for count, operators in _MOST.items() for operator in operators.split()}


def further(record: NodeRecord) -> list[str]:
    """Return the inputs of a node beyond those that its operator has."""
    return [*filter(None, record.inputs[MOST.get(record.operator, 1) :])]


def check_inputs(record: NodeRecord) -> None:
    """Raise Refused for a node with more inputs than its operator has."""
    if names := further(record):
        raise Refused(f"an input {names[0]!r} beyond the {MOST.get(record.operator, 1)} that the operator has")
