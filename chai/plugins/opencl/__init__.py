"""Layers computed by OpenCL kernels: OpenVINO's XML descriptions (SimpleGPU, MVCL), and kernels as in TIM-VX.

described    layer types of an XML file, and the plans of their kernels
functions    those of kernels given in Python, likewise
document     XML to elements with their places
reading      elements to a description, checked
description  what a layer consists of
formula      work sizes
parameters   the parameters of a kernel, from its source
half         half computed as float
rendering    the text that is compiled
plan         kernels, memory and copies for one layer and its sizes
kernel       the function of a custom type
worker       the process that runs kernels
"""
