"""CHaiDNN's vectors."""

from tests.vectors import vectors as vectors
