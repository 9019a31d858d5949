"""The parts of a network from a prototxt: trained parameters and plans."""
