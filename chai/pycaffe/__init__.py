"""pycaffe's interface on chai: ``import chai.pycaffe as caffe`` in place of ``import caffe``.

Everything here behaves as in Caffe's Python interface, except for the differences in docs/pycaffe.md. By default the
results are Caffe's: the device is "float" unless ``set_device_name``, CHAI_DEVICE or ``Net(..., device=)`` names another.
"""

from __future__ import annotations

from . import (
    _caffe as _caffe,
    coord_map as coord_map,
    draw as draw,
    io as io,
    net_spec as net_spec,
    proto as proto,
    pycaffe as pycaffe,
)
from ._caffe import (
    Blob as Blob,
    Layer as Layer,
    Net as Net,
    __getattr__ as __getattr__,
    has_nccl as has_nccl,
    init_log as init_log,
    layer_type_list as layer_type_list,
    log as log,
    set_device as set_device,
    set_mode_cpu as set_mode_cpu,
    set_mode_gpu as set_mode_gpu,
    set_random_seed as set_random_seed,
)
from .classifier import Classifier as Classifier
from .detector import Detector as Detector
from .mode import set_device_name as set_device_name
from .net import TEST as TEST, TRAIN as TRAIN
from .net_spec import NetSpec as NetSpec, layers as layers, params as params, to_proto as to_proto

__version__ = "1.0.0"  # of the interface
