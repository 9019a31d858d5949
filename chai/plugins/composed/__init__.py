"""Composed layers: types whose layers are made of other layers, ``@chai.custom.compose``.

definition   a composed type: function and arguments
builder      the functions' argument g, which records the parts
"""
