"""Operators on pictures: resizing, sampling, boxes."""
