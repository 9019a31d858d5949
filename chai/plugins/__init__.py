"""Custom layers: ``@chai.custom``, its registry, and the loading of custom code.

definition   a layer type: functions, options, arguments
arguments    values of named arguments, from the prototxt
registry     types by name, global and per network
loading      files and packages that define types
compiling    numba, its cache on disk, and plain Python without numba
selection    choice of an implementation; autotune
fields       a layer as calls of its function need it: arguments, and the fields of x
composed     layers that are made of others
frame        calls on inputs of one set of sizes
layer        the Layer in a Graph
failure      errors for users when custom code fails
opencl       layers whose kernels are in OpenCL, in a process of their own
"""

CODE = (".py", ".cl", ".h")  # files of custom layers: modules, and kernels in OpenCL with their headers
