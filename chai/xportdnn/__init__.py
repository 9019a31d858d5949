"""XportDNN, CHaiDNN's quantiser, by its arguments: ``python -m chai.xportdnn``."""
