"""Fast forms of the arithmetic that layers share."""
