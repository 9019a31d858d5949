"""Rewrites of a Graph, one per file."""
