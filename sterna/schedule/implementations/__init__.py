"""Implementations of contractions, one file each, found by listing this folder."""
