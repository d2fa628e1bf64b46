"""LLVM 22.1.0's names for loongarch, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu generic generic-la64: 32s 64bit d f lsx ual
cpu la464: 32s 64bit d f lasx lbt lsx lvz ual
cpu la664: 32s 64bit d div32 f frecipe lam-bh lamcas lasx lbt ld-seq-sa lsx lvz scq ual
cpu loongarch64: 32s 64bit d f ual
features: 32bit 32s 64bit d div32 f frecipe la-global-with-abs la-global-with-pcrel
  la-local-with-abs lam-bh lamcas lasx lbt ld-seq-sa lsx lvz prefer-w-inst relax scq ual
"""
