"""Operators, a file for each or for a family: types, computation, reference, schedule, cases.

Importing this package registers all of them.
"""

from sterna.support.discovery import modules_of

FOLDERS = (
    "sterna.op.tensor", "sterna.op.nn", "sterna.op.image", "sterna.op.linalg", "sterna.op.qnn",
    "sterna.op.random", "sterna.op.signal", "sterna.op.special", "sterna.op.vision",
)

for _folder in FOLDERS:
    modules_of(_folder)
