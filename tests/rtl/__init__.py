"""The accelerator's RTL: needs the extra ``rtl``."""
