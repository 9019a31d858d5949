"""VTA, an open accelerator with instructions of its own: what they mean, and how Tasks become some of them."""
