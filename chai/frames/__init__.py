"""Videos: sources of frames, networks that run over them, and where the results go."""
