"""Rewrites of a Graph, one per file; pipeline.py has those that an overlay needs, in order."""
