"""LLVM 22.1.0's names for nvptx, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpus: sm_100 sm_100a sm_100f sm_101 sm_101a sm_101f sm_103 sm_103a sm_103f sm_110 sm_110a sm_110f
  sm_120 sm_120a sm_120f sm_121 sm_121a sm_121f sm_20 sm_21 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52
  sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88 sm_89 sm_90 sm_90a
features: ptx32 ptx40 ptx41 ptx42 ptx43 ptx50 ptx60 ptx61 ptx62 ptx63 ptx64 ptx65 ptx70 ptx71 ptx72
  ptx73 ptx74 ptx75 ptx76 ptx77 ptx78 ptx80 ptx81 ptx82 ptx83 ptx84 ptx85 ptx86 ptx87 ptx88 ptx90
  sm_100 sm_100a sm_100f sm_101 sm_101a sm_101f sm_103 sm_103a sm_103f sm_110 sm_110a sm_110f sm_120
  sm_120a sm_120f sm_121 sm_121a sm_121f sm_20 sm_21 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60
  sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88 sm_89 sm_90 sm_90a
"""
