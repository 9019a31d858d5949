"""The parts of a network from a prototxt: trained parameters, prepared sizes, formats and plans."""
