"""Reports on networks: rows of layers, and HTML pages."""
