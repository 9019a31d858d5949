"""Drive an accelerator: its registers by name, and a chain in its memory, however both are reached."""
