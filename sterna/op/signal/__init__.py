"""Operators on signals: Fourier transforms, windows."""
