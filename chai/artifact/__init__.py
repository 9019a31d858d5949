"""Compiled networks (.chai): one file with everything that a board needs, and no code.

container   the file: prefix, JSON header, sections, checksums
values      dataclasses to JSON and back
save, load  an Execution to a file, and back; load has reader (words of the header), layers and steps
"""
