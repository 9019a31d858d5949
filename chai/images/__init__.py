"""Turn image files into network inputs, and results into pictures."""
