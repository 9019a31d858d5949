"""Make ``import chai.trace`` give chai.runtime.timeline."""

import sys

import chai.runtime.timeline

sys.modules[__name__] = chai.runtime.timeline
