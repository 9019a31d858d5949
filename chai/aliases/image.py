"""Make ``import chai.image`` give the functions for images, their files and cards."""

from chai.images.files import (
    find as find,
    prepared as prepared,
    read as read,
    read_array as read_array,
    read_classes as read_classes,
    read_labels as read_labels,
    read_mean as read_mean,
)
from chai.images.preprocess import (
    Preprocess as Preprocess,
    bilinear as bilinear,
    from_transform as from_transform,
    interpolate as interpolate,
)
from chai.zoo.card import Card as Card, parse_card as parse_card, read_card as read_card
