"""Programs that say `import tvm` run unchanged.

    python -m sterna.as_tvm program.py ARGUMENTS...
    python -m sterna.as_tvm -m module ARGUMENTS...
    python -m sterna.as_tvm -c "import tvm; print(tvm.__version__)"

In a notebook, before anything imports tvm:

    import sterna.as_tvm
    sterna.as_tvm.install()

Every module of this package then has two names, sterna.relay and tvm.relay, and is one object. Only
this process and those that multiprocessing starts from it see it so; an installed tvm stays as it
is, and so does what other processes import: start their programs by sterna.as_tvm too.
"""

from sterna.as_tvm.finder import install

__all__ = ["install"]
