"""Compiled networks (.chai): one file with everything a board needs, and no code.

container   file layout: prefix, JSON header, sections, checksums; header values
save, load  an Execution to a file, and back; load uses layers and steps
source      a file as the source of a Net's plan
"""
