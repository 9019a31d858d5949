"""The real pynq library on a simulated board. Skipped where pynq is not installed: nox -s driver."""
