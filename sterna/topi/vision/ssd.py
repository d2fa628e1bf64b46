"""Boxes of detection in one pass: SSD."""

from sterna.topi.operators import operator

multibox_prior = operator("vision.multibox_prior")
multibox_transform_loc = operator("vision.multibox_transform_loc")
