"""Make ``import chai.trace`` give chai.report.timeline."""

import sys

import chai.report.timeline

sys.modules[__name__] = chai.report.timeline
