"""Files of data: JSON with places, NumPy arrays, a progress log; dictionaries to dataclasses."""
