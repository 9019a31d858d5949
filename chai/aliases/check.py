"""Make ``import chai.check`` give chai.evaluate.compare."""

import sys

import chai.evaluate.compare

sys.modules[__name__] = chai.evaluate.compare
