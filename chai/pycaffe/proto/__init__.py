"""Caffe's messages: ``from chai.pycaffe.proto import caffe_pb2``."""

from . import caffe_pb2 as caffe_pb2
