"""Compiled networks (.chai): one file with everything a board needs, and no code.

container   file layout: prefix, JSON header, sections, checksums
values      dataclasses to JSON and back
save, load  an Execution to a file, and back; load uses reader (header values), layers and steps
"""
