"""Helpers that are independent of networks: files, tables, HTML, JSON, lazy numpy."""
