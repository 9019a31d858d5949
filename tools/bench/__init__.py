"""Measure chai beside engines that need a converted file, and against the processor's peak."""
