"""Layers computed by OpenCL kernels: OpenVINO's XML descriptions (SimpleGPU, MVCL), and kernels as in TIM-VX.

types        registration of the layer types of an XML file
document     XML to elements with their places
reading      elements to a description, checked
description  what a layer consists of
formula      work sizes
parameters   the parameters of a kernel, from its source
half         half computed as float
rendering    the text that is compiled
plan         kernels, memory and copies for one layer and its sizes
planner      such a plan, from a description
kernel       the function of a custom type
worker       the process that runs kernels
"""
