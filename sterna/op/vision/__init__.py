"""Operators on boxes and regions of images."""
