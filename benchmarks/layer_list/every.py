"""All layers, in the order of their tables."""

from layer_list import (
    convolutions,
    detection,
    elements,
    movement,
    other_convolutions,
    products,
    uncommon,
)
from layer_list.layer import Layer

TABLES = (convolutions, other_convolutions, products, elements, movement, detection, uncommon)
LAYERS: list[Layer] = [layer for table in TABLES for layer in table.LAYERS]
