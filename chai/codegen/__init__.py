"""Turn Tasks into the bytes that an accelerator fetches: descriptors, memory map, chain."""
