"""Decide which layers an overlay runs, in which formats and in what order: pure functions that run no layer."""
