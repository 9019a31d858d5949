"""Rewrites of a Graph, one per file; rewrite.py lists those that an overlay needs, in order."""
