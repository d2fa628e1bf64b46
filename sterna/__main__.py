"""python -m sterna is the command sterna."""

import sys

from sterna.cli import main

sys.exit(main())
