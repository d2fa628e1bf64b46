"""LLVM 22.1.0's names for hexagon, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpus: generic hexagonv5 hexagonv55 hexagonv60 hexagonv62 hexagonv65 hexagonv66 hexagonv67
  hexagonv67t hexagonv68 hexagonv69 hexagonv71 hexagonv71t hexagonv73 hexagonv75 hexagonv79
  hexagonv81
features: audio cabac compound duplex hvx hvx-ieee-fp hvx-length128b hvx-length64b hvx-qfloat hvxv60
  hvxv62 hvxv65 hvxv66 hvxv67 hvxv68 hvxv69 hvxv71 hvxv73 hvxv75 hvxv79 hvxv81 long-calls mem_noshuf
  memops noreturn-stack-elim nvj nvs packets prev65 reserved-r19 small-data tinycore v5 v55 v60 v62
  v65 v66 v67 v68 v69 v71 v73 v75 v79 v81 zreg
"""
