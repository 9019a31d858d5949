"""The devices: those without a folder here are tested where their results are, as the emulator in tests/kernels."""
