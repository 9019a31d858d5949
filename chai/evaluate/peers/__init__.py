"""Other engines that run the same network, for benchmarks."""
