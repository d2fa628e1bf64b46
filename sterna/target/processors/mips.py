"""LLVM 22.1.0's names for mips, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpus: generic i6400 i6500 mips1 mips2 mips3 mips32 mips32r2 mips32r3 mips32r5 mips32r6 mips4 mips5
  mips64 mips64r2 mips64r3 mips64r5 mips64r6 octeon octeon+ p5600
features: abs2008 cnmips cnmipsp crc dsp dspr2 dspr3 eva fp64 fpxx ginv gp64 i6400 i6500 long-calls
  micromips mips1 mips16 mips2 mips3 mips32 mips32r2 mips32r3 mips32r5 mips32r6 mips3_32 mips3_32r2
  mips3d mips4 mips4_32 mips4_32r2 mips5 mips5_32r2 mips64 mips64r2 mips64r3 mips64r5 mips64r6 msa
  mt nan2008 noabicalls nomadd4 nooddspreg p5600 ptr64 single-float soft-float strict-align sym32
  use-compact-branches use-indirect-jump-hazard use-tcc-in-div vfpu virt xgot
"""
