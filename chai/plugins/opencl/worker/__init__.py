"""The process that runs kernels.

process    its start, requests and end, from the network's side
memory     memory that both sides share
main       the process itself
engine     pyopencl
processor  the processor's name, where PoCL does not know it
"""
