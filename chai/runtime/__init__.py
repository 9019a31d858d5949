"""Run networks: layer by layer on the host, or as a Schedule on host and device, with times."""
