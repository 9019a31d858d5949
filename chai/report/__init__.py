"""Show networks to people: rows of layers and HTML pages."""
