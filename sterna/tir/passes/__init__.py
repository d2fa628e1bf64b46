"""Passes over loops: one function per file, named alike. pipeline.py has their order."""
