"""Numbers of a host model: networks to take them from, and how they follow from the steps of their passes."""
