"""Bitstreams of overlays: Verilog from a manifest, and the scripts with which Vivado builds it.

The scripts are files of ``hw_overlays/vivado``; they read ``settings.tcl``, which is written here.
"""
