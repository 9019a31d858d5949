"""Python code that the user named: how it is run, and layers that it defines as classes of other systems.

modules      runs files; finds what they import
caffe        Caffe's Python layers: ``class L(caffe.Layer)``
blob         the bottoms and tops of such a layer
"""
