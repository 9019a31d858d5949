"""proto/caffe.proto: facts of the format, caffe.desc up to date, real files parse.

Real files are not part of the checkout. Their folder is CHAI_TEST_DATA, else
../shared/models next to the checkout; without it those tests skip.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

ROOT = Path(__file__).resolve().parents[2]
DESC = ROOT / "proto" / "caffe.desc"
DATA = Path(os.environ.get("CHAI_TEST_DATA") or ROOT.parent / "shared" / "models")

# message.field number label type [default], checked by hand against the public
# schemas of BVLC Caffe, its SSD branch, CHaiDNN-v2 and NVCaffe. A float default
# is compared as a number. `packed` stands for a repeated field written packed.
FACTS = """
BlobShape.dim                              1 packed   int64
BlobProto.num                              1 optional int32 0
BlobProto.channels                         2 optional int32 0
BlobProto.height                           3 optional int32 0
BlobProto.width                            4 optional int32 0
BlobProto.data                             5 packed   float
BlobProto.diff                             6 packed   float
BlobProto.shape                            7 optional BlobShape
BlobProto.double_data                      8 packed   double
BlobProto.double_diff                      9 packed   double
BlobProto.raw_data_type                   10 optional BlobProto.Type
BlobProto.raw_diff_type                   11 optional BlobProto.Type
BlobProto.raw_data                        12 optional bytes
BlobProto.raw_diff                        13 optional bytes
Datum.channels                             1 optional int32
Datum.data                                 4 optional bytes
Datum.label                                5 optional int32
Datum.float_data                           6 repeated float
Datum.encoded                              7 optional bool false

NetParameter.name                          1 optional string
NetParameter.layers                        2 repeated V1LayerParameter
NetParameter.input                         3 repeated string
NetParameter.input_dim                     4 repeated int32
NetParameter.force_backward                5 optional bool false
NetParameter.state                         6 optional NetState
NetParameter.debug_info                    7 optional bool false
NetParameter.input_shape                   8 repeated BlobShape
NetParameter.layer                       100 repeated LayerParameter
NetState.phase                             1 optional Phase TEST
NetState.level                             2 optional int32 0
NetState.stage                             3 repeated string
NetStateRule.phase                         1 optional Phase
NetStateRule.min_level                     2 optional int32
NetStateRule.max_level                     3 optional int32
NetStateRule.stage                         4 repeated string
NetStateRule.not_stage                     5 repeated string

SolverParameter.train_net                   1 optional string
SolverParameter.test_net                    2 repeated string
SolverParameter.test_iter                   3 repeated int32
SolverParameter.test_interval               4 optional int32 0
SolverParameter.base_lr                     5 optional float
SolverParameter.display                     6 optional int32
SolverParameter.max_iter                    7 optional int32
SolverParameter.lr_policy                   8 optional string
SolverParameter.gamma                       9 optional float
SolverParameter.power                      10 optional float
SolverParameter.momentum                   11 optional float
SolverParameter.weight_decay               12 optional float
SolverParameter.stepsize                   13 optional int32
SolverParameter.snapshot                   14 optional int32 0
SolverParameter.snapshot_prefix            15 optional string
SolverParameter.snapshot_diff              16 optional bool false
SolverParameter.solver_mode                17 optional SolverParameter.SolverMode GPU
SolverParameter.device_id                  18 optional int32 0
SolverParameter.test_compute_loss          19 optional bool false
SolverParameter.random_seed                20 optional int64 -1
SolverParameter.train_net_param            21 optional NetParameter
SolverParameter.test_net_param             22 repeated NetParameter
SolverParameter.debug_info                 23 optional bool false
SolverParameter.net                        24 optional string
SolverParameter.net_param                  25 optional NetParameter
SolverParameter.train_state                26 optional NetState
SolverParameter.test_state                 27 repeated NetState
SolverParameter.snapshot_after_train       28 optional bool true
SolverParameter.regularization_type        29 optional string L2
SolverParameter.solver_type                30 optional SolverParameter.SolverType SGD
SolverParameter.delta                      31 optional float 1e-8
SolverParameter.test_initialization        32 optional bool true
SolverParameter.average_loss               33 optional int32 1
SolverParameter.stepvalue                  34 repeated int32
SolverParameter.clip_gradients             35 optional float -1
SolverParameter.iter_size                  36 optional int32 1
SolverParameter.snapshot_format            37 optional SolverParameter.SnapshotFormat BINARYPROTO
SolverParameter.rms_decay                  38 optional float 0.99
SolverParameter.momentum2                  39 optional float 0.999
SolverParameter.type                       40 optional string SGD
SolverParameter.layer_wise_reduce          41 optional bool true
SolverParameter.weights                    42 repeated string
SolverState.iter                            1 optional int32
SolverState.learned_net                     2 optional string
SolverState.history                         3 repeated BlobProto
SolverState.current_step                    4 optional int32 0

LayerParameter.name                        1 optional string
LayerParameter.type                        2 optional string
LayerParameter.bottom                      3 repeated string
LayerParameter.top                         4 repeated string
LayerParameter.loss_weight                 5 repeated float
LayerParameter.param                       6 repeated ParamSpec
LayerParameter.blobs                       7 repeated BlobProto
LayerParameter.include                     8 repeated NetStateRule
LayerParameter.exclude                     9 repeated NetStateRule
LayerParameter.phase                      10 optional Phase
LayerParameter.propagate_down             11 repeated bool
LayerParameter.transform_param           100 optional TransformationParameter
LayerParameter.loss_param                101 optional LossParameter
LayerParameter.accuracy_param            102 optional AccuracyParameter
LayerParameter.argmax_param              103 optional ArgMaxParameter
LayerParameter.concat_param              104 optional ConcatParameter
LayerParameter.contrastive_loss_param    105 optional ContrastiveLossParameter
LayerParameter.convolution_param         106 optional ConvolutionParameter
LayerParameter.data_param                107 optional DataParameter
LayerParameter.dropout_param             108 optional DropoutParameter
LayerParameter.dummy_data_param          109 optional DummyDataParameter
LayerParameter.eltwise_param             110 optional EltwiseParameter
LayerParameter.exp_param                 111 optional ExpParameter
LayerParameter.hdf5_data_param           112 optional HDF5DataParameter
LayerParameter.hdf5_output_param         113 optional HDF5OutputParameter
LayerParameter.hinge_loss_param          114 optional HingeLossParameter
LayerParameter.image_data_param          115 optional ImageDataParameter
LayerParameter.infogain_loss_param       116 optional InfogainLossParameter
LayerParameter.inner_product_param       117 optional InnerProductParameter
LayerParameter.lrn_param                 118 optional LRNParameter
LayerParameter.memory_data_param         119 optional MemoryDataParameter
LayerParameter.mvn_param                 120 optional MVNParameter
LayerParameter.pooling_param             121 optional PoolingParameter
LayerParameter.power_param               122 optional PowerParameter
LayerParameter.relu_param                123 optional ReLUParameter
LayerParameter.sigmoid_param             124 optional SigmoidParameter
LayerParameter.softmax_param             125 optional SoftmaxParameter
LayerParameter.slice_param               126 optional SliceParameter
LayerParameter.tanh_param                127 optional TanHParameter
LayerParameter.threshold_param           128 optional ThresholdParameter
LayerParameter.window_data_param         129 optional WindowDataParameter
LayerParameter.python_param              130 optional PythonParameter
LayerParameter.prelu_param               131 optional PReLUParameter
LayerParameter.spp_param                 132 optional SPPParameter
LayerParameter.reshape_param             133 optional ReshapeParameter
LayerParameter.log_param                 134 optional LogParameter
LayerParameter.flatten_param             135 optional FlattenParameter
LayerParameter.reduction_param           136 optional ReductionParameter
LayerParameter.embed_param               137 optional EmbedParameter
LayerParameter.tile_param                138 optional TileParameter
LayerParameter.batch_norm_param          139 optional BatchNormParameter
LayerParameter.elu_param                 140 optional ELUParameter
LayerParameter.bias_param                141 optional BiasParameter
LayerParameter.scale_param               142 optional ScaleParameter
LayerParameter.input_param               143 optional InputParameter
LayerParameter.crop_param                144 optional CropParameter
LayerParameter.parameter_param           145 optional ParameterParameter
LayerParameter.recurrent_param           146 optional RecurrentParameter
LayerParameter.swish_param               147 optional SwishParameter
LayerParameter.clip_param                148 optional ClipParameter
LayerParameter.annotated_data_param      200 optional AnnotatedDataParameter
LayerParameter.multibox_loss_param       201 optional MultiBoxLossParameter
LayerParameter.permute_param             202 optional PermuteParameter
LayerParameter.prior_box_param           203 optional PriorBoxParameter
LayerParameter.detection_output_param    204 optional DetectionOutputParameter
LayerParameter.detection_evaluate_param  205 optional DetectionEvaluateParameter
LayerParameter.norm_param                206 optional NormalizeParameter
LayerParameter.video_data_param          207 optional VideoDataParameter
LayerParameter.precision_param           997 optional PrecisionParameter
LayerParameter.xcustom_param             998 optional XCustomParameter
LayerParameter.user_defined_layer        999 optional bool false

BatchNormParameter.use_global_stats        1 optional bool
BatchNormParameter.moving_average_fraction 2 optional float 0.999
BatchNormParameter.eps                     3 optional float 1e-5
BatchNormParameter.scale_filler            5 optional FillerParameter
BatchNormParameter.bias_filler             6 optional FillerParameter
BatchNormParameter.scale_bias              7 optional bool false
ClipParameter.min                          1 optional float
ClipParameter.max                          2 optional float
ConcatParameter.concat_dim                 1 optional uint32 1
ConcatParameter.axis                       2 optional int32 1
ConvolutionParameter.num_output            1 optional uint32
ConvolutionParameter.bias_term             2 optional bool true
ConvolutionParameter.pad                   3 repeated uint32
ConvolutionParameter.kernel_size           4 repeated uint32
ConvolutionParameter.group                 5 optional uint32 1
ConvolutionParameter.stride                6 repeated uint32
ConvolutionParameter.pad_h                 9 optional uint32 0
ConvolutionParameter.pad_w                10 optional uint32 0
ConvolutionParameter.kernel_h             11 optional uint32
ConvolutionParameter.kernel_w             12 optional uint32
ConvolutionParameter.stride_h             13 optional uint32
ConvolutionParameter.stride_w             14 optional uint32
ConvolutionParameter.axis                 16 optional int32 1
ConvolutionParameter.dilation             18 repeated uint32
CropParameter.axis                         1 optional int32 2
CropParameter.offset                       2 repeated uint32
DropoutParameter.dropout_ratio             1 optional float 0.5
EltwiseParameter.operation                 1 optional EltwiseParameter.EltwiseOp SUM
EltwiseParameter.coeff                     2 repeated float
ELUParameter.alpha                         1 optional float 1
ExpParameter.base                          1 optional float -1
FlattenParameter.axis                      1 optional int32 1
FlattenParameter.end_axis                  2 optional int32 -1
InfogainLossParameter.axis                 2 optional int32 1
InnerProductParameter.num_output           1 optional uint32
InnerProductParameter.bias_term            2 optional bool true
InnerProductParameter.axis                 5 optional int32 1
InnerProductParameter.transpose            6 optional bool false
InputParameter.shape                       1 repeated BlobShape
LRNParameter.local_size                    1 optional uint32 5
LRNParameter.alpha                         2 optional float 1
LRNParameter.beta                          3 optional float 0.75
LRNParameter.norm_region                   4 optional LRNParameter.NormRegion ACROSS_CHANNELS
LRNParameter.k                             5 optional float 1
MVNParameter.normalize_variance            1 optional bool true
MVNParameter.across_channels               2 optional bool false
MVNParameter.eps                           3 optional float 1e-9
PoolingParameter.pool                      1 optional PoolingParameter.PoolMethod MAX
PoolingParameter.kernel_size               2 optional uint32
PoolingParameter.stride                    3 optional uint32 1
PoolingParameter.pad                       4 optional uint32 0
PoolingParameter.kernel_h                  5 optional uint32
PoolingParameter.kernel_w                  6 optional uint32
PoolingParameter.stride_h                  7 optional uint32
PoolingParameter.stride_w                  8 optional uint32
PoolingParameter.pad_h                     9 optional uint32 0
PoolingParameter.pad_w                    10 optional uint32 0
PoolingParameter.global_pooling           12 optional bool false
PoolingParameter.round_mode               13 optional PoolingParameter.RoundMode CEIL
PowerParameter.power                       1 optional float 1
PowerParameter.scale                       2 optional float 1
PowerParameter.shift                       3 optional float 0
PReLUParameter.channel_shared              2 optional bool false
PythonParameter.module                     1 optional string
PythonParameter.layer                      2 optional string
PythonParameter.param_str                  3 optional string
ReductionParameter.operation               1 optional ReductionParameter.ReductionOp SUM
ReLUParameter.negative_slope               1 optional float 0
ReshapeParameter.shape                     1 optional BlobShape
ReshapeParameter.axis                      2 optional int32 0
ReshapeParameter.num_axes                  3 optional int32 -1
ScaleParameter.axis                        1 optional int32 1
ScaleParameter.num_axes                    2 optional int32 1
ScaleParameter.bias_term                   4 optional bool false
SliceParameter.slice_dim                   1 optional uint32 1
SliceParameter.slice_point                 2 repeated uint32
SliceParameter.axis                        3 optional int32 1
SoftmaxParameter.axis                      2 optional int32 1
SwishParameter.beta                        1 optional float 1
TileParameter.axis                         1 optional int32 1
TileParameter.tiles                        2 optional int32
TransformationParameter.scale              1 optional float 1
TransformationParameter.mean_value         5 repeated float
TransformationParameter.resize_param       8 repeated ResizeParameter
TransformationParameter.crop_h            11 optional uint32 0
TransformationParameter.expand_param      14 optional ExpansionParameter

PrecisionParameter.bw_layer_in             3 optional uint32
PrecisionParameter.bw_layer_out            4 optional uint32
PrecisionParameter.bw_params               5 optional uint32
PrecisionParameter.fl_layer_in             6 optional int32
PrecisionParameter.fl_layer_out            7 optional int32
PrecisionParameter.fl_params               8 optional int32
PrecisionParameter.batchnorm_mean_fl       9 optional int32
PrecisionParameter.batchnorm_variance_fl  10 optional int32
PrecisionParameter.batchnorm_mean_bw      11 optional int32
PrecisionParameter.batchnorm_variance_bw  12 optional int32
PrecisionParameter.scale_gamma_fl         13 optional int32
PrecisionParameter.scale_beta_fl          14 optional int32
PrecisionParameter.scale_gamma_bw         15 optional int32
PrecisionParameter.scale_beta_bw          16 optional int32
PrecisionParameter.scale_gamma_by_std_fl  17 optional int32
PrecisionParameter.scale_gamma_by_std_bw  18 optional int32
PrecisionParameter.th_layer_in            19 optional float
PrecisionParameter.th_layer_out           20 optional float
PrecisionParameter.th_params              21 repeated float
PrecisionParameter.quant_type             22 optional string DynamicFixed
XCustomParameter.top_dim                   1 repeated uint32
XCustomParameter.float_args                2 repeated float
XCustomParameter.string_args               3 repeated string

DetectionOutputParameter.num_classes                1 optional uint32
DetectionOutputParameter.share_location             2 optional bool true
DetectionOutputParameter.background_label_id        3 optional int32 0
DetectionOutputParameter.nms_param                  4 optional NonMaximumSuppressionParameter
DetectionOutputParameter.save_output_param          5 optional SaveOutputParameter
DetectionOutputParameter.code_type                  6 optional PriorBoxParameter.CodeType CORNER
DetectionOutputParameter.keep_top_k                 7 optional int32 -1
DetectionOutputParameter.variance_encoded_in_target 8 optional bool false
DetectionOutputParameter.confidence_threshold       9 optional float
DetectionOutputParameter.visualize                 10 optional bool false
DetectionOutputParameter.visualize_threshold       11 optional float
DetectionOutputParameter.save_file                 12 optional string
NonMaximumSuppressionParameter.nms_threshold        1 optional float 0.3
NonMaximumSuppressionParameter.top_k                2 optional int32
NonMaximumSuppressionParameter.eta                  3 optional float 1
NormalizeParameter.across_spatial                   1 optional bool true
NormalizeParameter.scale_filler                     2 optional FillerParameter
NormalizeParameter.channel_shared                   3 optional bool true
NormalizeParameter.eps                              4 optional float 1e-10
PermuteParameter.order                              1 repeated uint32
ProposalParameter.feat_stride                       1 optional uint32 16
ProposalParameter.base_size                         2 optional uint32 16
ProposalParameter.min_size                          3 optional uint32 16
ProposalParameter.ratio                             4 repeated float
ProposalParameter.scale                             5 repeated float
ProposalParameter.pre_nms_topn                      6 optional uint32 6000
ProposalParameter.post_nms_topn                     7 optional uint32 300
ProposalParameter.nms_thresh                        8 optional float 0.7
PriorBoxParameter.min_size                          1 repeated float
PriorBoxParameter.max_size                          2 repeated float
PriorBoxParameter.aspect_ratio                      3 repeated float
PriorBoxParameter.flip                              4 optional bool true
PriorBoxParameter.clip                              5 optional bool false
PriorBoxParameter.variance                          6 repeated float
PriorBoxParameter.img_size                          7 optional uint32
PriorBoxParameter.img_h                             8 optional uint32
PriorBoxParameter.img_w                             9 optional uint32
PriorBoxParameter.step                             10 optional float
PriorBoxParameter.step_h                           11 optional float
PriorBoxParameter.step_w                           12 optional float
PriorBoxParameter.offset                           13 optional float 0.5
ResizeParameter.resize_mode                         2 optional ResizeParameter.Resize_mode WARP
SaveOutputParameter.num_test_image                  6 optional uint32

V1LayerParameter.layer                     1 optional V0LayerParameter
V1LayerParameter.bottom                    2 repeated string
V1LayerParameter.top                       3 repeated string
V1LayerParameter.name                      4 optional string
V1LayerParameter.type                      5 optional V1LayerParameter.LayerType
V1LayerParameter.blobs                     6 repeated BlobProto
V1LayerParameter.concat_param              9 optional ConcatParameter
V1LayerParameter.convolution_param        10 optional ConvolutionParameter
V1LayerParameter.inner_product_param      17 optional InnerProductParameter
V1LayerParameter.lrn_param                18 optional LRNParameter
V1LayerParameter.pooling_param            19 optional PoolingParameter
V1LayerParameter.eltwise_param            24 optional EltwiseParameter
V1LayerParameter.include                  32 repeated NetStateRule
V1LayerParameter.softmax_param            39 optional SoftmaxParameter
V1LayerParameter.param                  1001 repeated string
V1LayerParameter.precision_param         997 optional PrecisionParameter
V1LayerParameter.blob_share_mode        1002 repeated V1LayerParameter.DimCheckMode
V0LayerParameter.num_output                3 optional uint32
V0LayerParameter.biasterm                  4 optional bool true
V0LayerParameter.kernelsize                8 optional uint32
V0LayerParameter.stride                   10 optional uint32 1
V0LayerParameter.pool                     11 optional V0LayerParameter.PoolMethod MAX
V0LayerParameter.k                        22 optional float 1
V0LayerParameter.blobs                    50 repeated BlobProto
V0LayerParameter.concat_dim               65 optional uint32 1
V0LayerParameter.hdf5_output_param      1001 optional HDF5OutputParameter
"""

FORKS = 2000  # the first number of ours for fields of further forks

# Fields that further forks added to the messages above, and their defaults where one counts.
FORK_FIELDS = {
    "BatchNormParameter.add_eps_before_sqrt": "true", "ConvolutionParameter.pad_l": "0", "ConvolutionParameter.pad_r": "0",
    "ConvolutionParameter.pad_t": "0", "ConvolutionParameter.pad_b": "0", "DetectionOutputParameter.nbottom": "6",
    "DetectionOutputParameter.no_permute": "false", "PoolingParameter.ceil_mode": "true", "PoolingParameter.pad_l": "0",
    "PoolingParameter.pad_r": "0", "PoolingParameter.pad_t": "0", "PoolingParameter.pad_b": "0",
    "ReLUParameter.relu6": "false", "ReshapeParameter.pixelshuffler": "1", "TransformationParameter.caffe_yolo": "false",
    "V1LayerParameter.local_param": "",
}  # fmt: skip

ENUMS = {
    "Phase": "TRAIN 0 TEST 1",
    "BlobProto.Type": "DOUBLE 0 FLOAT 1 FLOAT16 2 INT 3 UINT 4",
    "EltwiseParameter.EltwiseOp": "PROD 0 SUM 1 MAX 2",
    "LRNParameter.NormRegion": "ACROSS_CHANNELS 0 WITHIN_CHANNEL 1",
    "PoolingParameter.PoolMethod": "MAX 0 AVE 1 STOCHASTIC 2 AVE_EXC_PAD 3 AVE_TF 3",
    "PoolingParameter.RoundMode": "CEIL 0 FLOOR 1",
    "PriorBoxParameter.CodeType": "CORNER 1 CENTER_SIZE 2 CORNER_SIZE 3",
    "ReductionParameter.ReductionOp": "SUM 1 ASUM 2 SUMSQ 3 MEAN 4 MAX 990 MIN 991 PROD 992",
    "SolverParameter.SolverMode": "CPU 0 GPU 1",
    "SolverParameter.SnapshotFormat": "HDF5 0 BINARYPROTO 1",
    "SolverParameter.SolverType": "SGD 0 NESTEROV 1 ADAGRAD 2 RMSPROP 3 ADADELTA 4 ADAM 5",
    "V1LayerParameter.LayerType": (
        "NONE 0 ACCURACY 1 BNLL 2 CONCAT 3 CONVOLUTION 4 DATA 5 DROPOUT 6 EUCLIDEAN_LOSS 7 FLATTEN 8 HDF5_DATA 9 "
        "HDF5_OUTPUT 10 IM2COL 11 IMAGE_DATA 12 INFOGAIN_LOSS 13 INNER_PRODUCT 14 LRN 15 "
        "MULTINOMIAL_LOGISTIC_LOSS 16 POOLING 17 RELU 18 SIGMOID 19 SOFTMAX 20 SOFTMAX_LOSS 21 SPLIT 22 TANH 23 "
        "WINDOW_DATA 24 ELTWISE 25 POWER 26 SIGMOID_CROSS_ENTROPY_LOSS 27 HINGE_LOSS 28 MEMORY_DATA 29 ARGMAX 30 "
        "THRESHOLD 31 DUMMY_DATA 32 SLICE 33 MVN 34 ABSVAL 35 SILENCE 36 CONTRASTIVE_LOSS 37 EXP 38 DECONVOLUTION 39 "
        "LOCAL 2000"
    ),
}


def read_descriptors(blob: bytes) -> Any:
    return descriptor_pb2.FileDescriptorSet.FromString(blob)


def message_class(name: str) -> Any:
    """The class of caffe.`name`, from a pool of its own so that no other caffe.proto clashes."""
    pool = descriptor_pool.DescriptorPool()
    for file in read_descriptors(DESC.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"caffe.{name}")
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and newer
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


@pytest.fixture(scope="module")
def schema() -> Any:
    (file,) = read_descriptors(DESC.read_bytes()).file
    return file


@pytest.fixture(scope="module")
def net_class() -> Any:
    return message_class("NetParameter")


@pytest.fixture(scope="module")
def regen() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chai_proto_regen", ROOT / "proto" / "regen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def need_protoc() -> None:
    pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed: pip install grpcio-tools")


def data_files(*patterns: str) -> list[Any]:
    files = sorted(path for pattern in patterns for path in DATA.glob(pattern))
    if not files:
        reason = f"no {' or '.join(patterns)} under {DATA}: set CHAI_TEST_DATA"
        return [pytest.param(None, id="no-data", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(path, id=path.relative_to(DATA).as_posix()) for path in files]


def layers_of(net: Any) -> dict[str, Any]:
    """Layer messages by name, of V2, V1 and V0 files."""
    old = [layer.layer if layer.HasField("layer") else layer for layer in net.layers]
    return {layer.name: layer for layer in [*net.layer, *old]}


# --- caffe.desc is what caffe.proto compiles to ---------------------------------------------


@pytest.mark.parametrize("name", ["caffe", "onnx"])
def test_desc_is_current(regen: ModuleType, tmp_path: Path, name: str) -> None:
    need_protoc()
    source, stored = ROOT / "proto" / f"{name}.proto", ROOT / "proto" / f"{name}.desc"
    fresh = regen.compile_proto(source)
    assert read_descriptors(fresh) == read_descriptors(stored.read_bytes()), "run python proto/regen.py"
    assert regen.compile_proto(source) == fresh


def test_check_mode(
    regen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_protoc()
    target = tmp_path / "caffe.desc"
    monkeypatch.setattr(regen, "TARGETS", tmp_path)
    for stale in (None, b"", DESC.read_bytes()[:-1]):
        if stale is not None:
            target.write_bytes(stale)
        assert regen.main(["--check"]) == 1
        error = capsys.readouterr().err
        assert "out of date" in error and error.count("\n") == 1
        assert not target.exists() if stale is None else target.read_bytes() == stale
    assert regen.main([]) == 0
    assert regen.main(["--check"]) == 0


def test_missing_protoc_is_explained(
    regen: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)  # makes the import fail
    assert regen.main(["--check"]) == 2
    assert "pip install grpcio-tools" in capsys.readouterr().err


def test_desc_carries_no_comments(schema: Any) -> None:
    assert schema.name == "caffe.proto" and schema.package == "caffe"
    assert not schema.HasField("source_code_info")


# --- facts ----------------------------------------------------------------------------------


def describe(field: Any) -> tuple[int, str, str, str]:
    """(number, label, type, default) of a FieldDescriptorProto, in the words of FACTS."""
    kinds = descriptor_pb2.FieldDescriptorProto
    kind = kinds.Type.Name(field.type)[len("TYPE_") :].lower()
    if field.type_name:
        kind = field.type_name[len(".caffe.") :]
    label = kinds.Label.Name(field.label)[len("LABEL_") :].lower()
    if field.options.packed:
        label = "packed"
    default = str(float(field.default_value)) if kind == "float" and field.default_value else field.default_value
    return field.number, label, kind, default


def test_fields(schema: Any) -> None:
    described = {f"{m.name}.{field.name}": describe(field) for m in schema.message_type for field in m.field}
    wrong = []
    for line in filter(None, FACTS.splitlines()):
        name, number, label, kind, *default = line.split()
        if kind == "float":
            default = [str(float(value)) for value in default]
        fact = (int(number), label, kind, "".join(default))
        if described.get(name) != fact:
            wrong.append(f"{name}: expected {fact}, found {described.get(name)}")
    assert not wrong, "\n".join(wrong)


def test_enums(schema: Any) -> None:
    enums = {enum.name: enum for enum in schema.enum_type}
    enums.update({f"{m.name}.{enum.name}": enum for m in schema.message_type for enum in m.enum_type})
    for name, text in ENUMS.items():
        words = text.split()
        expected = {key: int(number) for key, number in zip(words[::2], words[1::2], strict=True)}
        assert {value.name: value.number for value in enums[name].value} == expected, name


def test_layer_parameters_are_all_listed_in_facts(schema: Any) -> None:
    (layer,) = [message for message in schema.message_type if message.name == "LayerParameter"]
    listed = {line.split()[0] for line in FACTS.splitlines() if line}
    # quantization_param's number is ours, and so are those of further forks from 2000 on: they are no facts
    ours = {f"LayerParameter.{field.name}" for field in layer.field} - listed
    assert ours == {"LayerParameter.quantization_param"} | {
        f"LayerParameter.{field.name}" for field in layer.field if field.number >= FORKS
    }


def test_fields_of_further_forks(schema: Any) -> None:
    """No other field has a number from 2000 on, so no binary file of BVLC, SSD or CHaiDNN reaches one of these."""
    defaults = {
        f"{m.name}.{f.name}": f.default_value for m in schema.message_type for f in m.field if f.number >= FORKS
    }
    assert FORK_FIELDS.items() <= defaults.items()
    assert max(int(line.split()[1]) for line in filter(None, FACTS.splitlines())) < FORKS


# --- forks ----------------------------------------------------------------------------------


def test_both_names_of_number_147(net_class: Any) -> None:
    net = text_format.Parse(
        'layer { name: "a" quantization_param { bw_params: 6 } } layer { name: "b" swish_param { beta: 0.5 } }',
        net_class(),
    )
    assert net.layer[0].quantization_param.bw_params == 6
    assert net.layer[0].quantization_param.quant_type == "DynamicFixed"
    assert net.layer[1].swish_param.beta == 0.5

    # CHaiDNN's binary form: 147 { bw_params (5): 8, fl_params (8): 7 }. Nothing of it is lost.
    wire = bytes([147 << 3 & 0x7F | 2 | 0x80, 147 >> 4, 4, 5 << 3, 8, 8 << 3, 7])
    layer = type(net.layer[0]).FromString(wire)
    assert not layer.swish_param.HasField("beta")
    assert layer.SerializeToString() == wire
    precision = type(layer.quantization_param).FromString(layer.swish_param.SerializeToString())
    assert (precision.bw_params, precision.fl_params) == (8, 7)


def test_nvcaffe_half_blob() -> None:
    # raw_data_type (10) FLOAT16, raw_data (12) 1.0 and -2.0, shape (7) { dim (1) [2] }
    wire = bytes([10 << 3, 2, 12 << 3 | 2, 4, 0x00, 0x3C, 0x00, 0xC0, 7 << 3 | 2, 3, 1 << 3 | 2, 1, 2])
    blob = message_class("BlobProto").FromString(wire)
    assert (blob.raw_data_type, blob.raw_data, list(blob.shape.dim)) == (2, b"\x00\x3c\x00\xc0", [2])
    assert not blob.data


# --- real files -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", data_files("*/deploy.prototxt", "format_variants/*.prototxt"))
def test_prototxt_parses(path: Path, net_class: Any) -> None:
    net = text_format.Parse(path.read_text(encoding="utf-8"), net_class())
    assert layers_of(net)


@pytest.mark.parametrize("path", data_files("*/weights.caffemodel", "format_variants/*.caffemodel"))
def test_caffemodel_parses(path: Path, net_class: Any) -> None:
    net = net_class.FromString(path.read_bytes())
    layers = layers_of(net)
    assert layers and all(layers)
    weighted = {name for name, layer in layers.items() if layer.blobs}
    deploy = path.with_name("deploy.prototxt")
    if deploy.is_file():
        named = layers_of(text_format.Parse(deploy.read_text(encoding="utf-8"), net_class()))
        assert weighted & set(named), f"no layer of {deploy.name} has weights"
    for name in weighted:
        for blob in layers[name].blobs:
            legacy = (blob.num, blob.channels, blob.height, blob.width)
            count = math.prod(blob.shape.dim if blob.HasField("shape") else legacy)
            assert len(blob.data) + len(blob.double_data) == count, name
