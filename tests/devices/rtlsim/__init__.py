"""The simulated RTL as a device: needs the extra ``rtl``."""
