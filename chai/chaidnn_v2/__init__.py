"""CHaiDNN-v2's arithmetic, bit for bit, with its defects: kinds of Task and the numbers that layers get for them.

``docs/chaidnn.md`` lists what is emulated, and what is not.
"""
