"""Make ``import chai.picture`` give chai.images.drawing."""

import sys

import chai.images.drawing

sys.modules[__name__] = chai.images.drawing
