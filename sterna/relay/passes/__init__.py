"""Passes over graphs: one function in one file, all with one name."""
