"""Make ``import chai.image`` give chai.images.preprocess."""

import sys

import chai.images.preprocess

sys.modules[__name__] = chai.images.preprocess
