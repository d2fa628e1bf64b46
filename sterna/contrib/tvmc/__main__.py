"""python -m sterna.contrib.tvmc: the classic command line."""

import sys

from sterna.contrib.tvmc.main import main

if __name__ == "__main__":
    sys.exit(main())
