"""Turn image files into network inputs, and answers into pictures."""
