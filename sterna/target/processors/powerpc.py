"""LLVM 22.1.0's names for powerpc, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu 440 450: 64bit 64bit-support crbits fpu fres frsqrte hard-float icbt
  invariant-function-descriptors isel msync
cpu 601 602: 64bit 64bit-support crbits fpu hard-float invariant-function-descriptors
cpu 603 603e 603ev 604 604e 620 750 g3: 64bit 64bit-support crbits fpu fres frsqrte hard-float
  invariant-function-descriptors
cpu 7400 7450 g4 g4+: 64bit 64bit-support altivec crbits fpu fres frsqrte hard-float
  invariant-function-descriptors
cpu 970 g5 ppc64 pwr4: 64bit 64bit-support altivec crbits fpu fres frsqrte fsqrt hard-float
  invariant-function-descriptors mfocrf stfiwx
cpu a2: 64bit 64bit-support booke cmpb crbits fcpsgn fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt
  hard-float icbt invariant-function-descriptors isa-v206-instructions isel ldbrx lfiwax mfocrf
  recipprec stfiwx
cpu e500mc: 64bit 64bit-support booke crbits fpu hard-float icbt invariant-function-descriptors isel
  stfiwx
cpu e5500: 64bit 64bit-support booke crbits fpu hard-float icbt invariant-function-descriptors isel
  mfocrf stfiwx
cpu future: 64bit 64bit-support allow-unaligned-fp-access altivec bpermd cmpb crbits crypto
  direct-move extdiv fcpsgn fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt fusion hard-float icbt
  invariant-function-descriptors isa-future-instructions isa-v206-instructions isa-v207-instructions
  isel ldbrx lfiwax mfocrf mma partword-atomics pcrelative-memops popcntd power10-vector
  power8-altivec power8-vector quadword-atomics recipprec stfiwx two-const-nr vsx
cpu generic ppc64le pwr8: 64bit 64bit-support allow-unaligned-fp-access altivec bpermd cmpb crbits
  crypto direct-move extdiv fcpsgn fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt fusion hard-float
  htm icbt invariant-function-descriptors isa-v206-instructions isa-v207-instructions isel ldbrx
  lfiwax mfocrf partword-atomics popcntd power8-altivec power8-vector quadword-atomics recipprec
  stfiwx two-const-nr vsx
cpu ppc ppc32: 64bit 64bit-support crbits hard-float invariant-function-descriptors
cpu pwr10 pwr11: 64bit 64bit-support allow-unaligned-fp-access altivec bpermd cmpb crbits crypto
  direct-move extdiv fcpsgn fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt fusion hard-float icbt
  invariant-function-descriptors isa-v206-instructions isa-v207-instructions isel ldbrx lfiwax
  mfocrf mma partword-atomics pcrelative-memops popcntd power10-vector power8-altivec power8-vector
  quadword-atomics recipprec stfiwx two-const-nr vsx
cpu pwr3: 64bit 64bit-support altivec crbits fpu fres frsqrte hard-float
  invariant-function-descriptors mfocrf stfiwx
cpu pwr5: 64bit 64bit-support altivec crbits fpu fre fres frsqrte frsqrtes fsqrt hard-float
  invariant-function-descriptors mfocrf stfiwx
cpu pwr5x: 64bit 64bit-support altivec crbits fprnd fpu fre fres frsqrte frsqrtes fsqrt hard-float
  invariant-function-descriptors mfocrf stfiwx
cpu pwr6 pwr6x: 64bit 64bit-support altivec cmpb crbits fcpsgn fprnd fpu fre fres frsqrte frsqrtes
  fsqrt hard-float invariant-function-descriptors lfiwax mfocrf recipprec stfiwx
cpu pwr7: 64bit 64bit-support allow-unaligned-fp-access altivec bpermd cmpb crbits extdiv fcpsgn
  fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt hard-float invariant-function-descriptors
  isa-v206-instructions isel ldbrx lfiwax mfocrf popcntd recipprec stfiwx two-const-nr vsx
cpu pwr9: 64bit 64bit-support allow-unaligned-fp-access altivec bpermd cmpb crbits crypto
  direct-move extdiv fcpsgn fpcvt fprnd fpu fre fres frsqrte frsqrtes fsqrt hard-float htm icbt
  invariant-function-descriptors isa-v206-instructions isa-v207-instructions isel ldbrx lfiwax
  mfocrf partword-atomics popcntd power8-altivec power8-vector power9-vector quadword-atomics
  recipprec stfiwx two-const-nr vectors-use-two-units vsx
feature isa-future-instructions: isa-v31-instructions
feature isa-v31-instructions: isa-v30-instructions
feature mma: paired-vector-memops power9-altivec
feature msync: booke
feature paired-vector-memops: isa-v30-instructions
feature pcrelative-memops: prefix-instrs
feature power10-vector: isa-v31-instructions power9-vector
feature power9-altivec: isa-v30-instructions
feature power9-vector: power9-altivec
feature prefix-instrs: isa-v31-instructions
features: 64bit 64bit-support 64bitregs aix aix-shared-lib-tls-model-opt aix-small-local-dynamic-tls
  aix-small-local-exec-tls allow-unaligned-fp-access altivec booke bpermd cmpb crbits crypto
  direct-move e500 efpu2 extdiv fast-MFLR fcpsgn float128 fpcvt fprnd fpu fre fres frsqrte frsqrtes
  fsqrt fuse-add-logical fuse-addi-load fuse-addis-load fuse-arith-add fuse-back2back fuse-cmp
  fuse-logical fuse-logical-add fuse-sha3 fuse-store fuse-wideimm fuse-zeromove fusion hard-float
  htm icbt invariant-function-descriptors isa-v206-instructions isa-v207-instructions
  isa-v30-instructions isel ldbrx lfiwax longcall mfocrf modern-aix-as partword-atomics popcntd
  power8-altivec power8-vector ppc-postra-sched ppc-prera-sched ppc4xx ppc6xx
  predictable-select-expensive privileged quadword-atomics recipprec rop-protect secure-plt
  slow-popcntd spe stfiwx two-const-nr vectors-use-two-units vsx
"""
