"""Make ``import chai.fetch`` give chai.zoo.fetch."""

import sys

import chai.zoo.fetch

sys.modules[__name__] = chai.zoo.fetch
