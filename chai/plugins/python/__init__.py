"""Python code that the user named: how it is run, and layers that it defines as classes of other systems.

modules      runs files; finds what they import
classes      makes a custom type of a class
caffe        classes for Caffe: ``class L(caffe.Layer)``
blob         their bottoms and tops
opencv       classes for OpenCV's cv2.dnn
vitis        classes for Vitis AI
"""
