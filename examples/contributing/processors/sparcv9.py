"""LLVM's names for sparcv9, each with what it brings along.

In the tree `python -m sterna.target.list_llvm_names sparcv9` asks LLVM and writes this file.
"""

TEXT = """\
cpu niagara4: osa2011 popc v9 vis vis2 vis3
cpus: generic niagara niagara2 niagara3 ultrasparc ultrasparc3 v8 v9
features: crypto hard-quad-float leon osa2011 popc v9 vis vis2 vis3
"""
