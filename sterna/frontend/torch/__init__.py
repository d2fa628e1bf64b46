"""PyTorch: one table of converters by ATen operator, and readers that lead to one record.

program.py is the record; read_*.py make it from exported programs, their files and TorchScript;
importer.py turns it into a graph with the converters of convert_*.py.
"""
