"""Net, at the place that it has in Caffe: ``from chai.pycaffe.pycaffe import Net``."""

from ._caffe import Net as Net, __getattr__ as __getattr__
