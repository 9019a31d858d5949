"""Fast implementations of the arithmetic that layers share."""
