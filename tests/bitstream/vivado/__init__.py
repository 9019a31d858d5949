"""A strict stand-in for Vivado: the commands that the build scripts use, and the block design that they make.

It knows only what public scripts show that are known to build: each entry of ``known.py`` has its file.
"""
