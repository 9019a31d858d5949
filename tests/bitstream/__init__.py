"""From a manifest to a bitstream."""
