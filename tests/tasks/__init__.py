"""Tasks: definitions, kernels, and the way from layers to them."""
