"""LLVM 22.1.0's names for x86, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu alderlake gracemont meteorlake raptorlake: adx avxvnni bmi bmi2 clflushopt clwb cmov crc32 cx8
  f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt
  prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk vaes vpclmulqdq waitpkg widekl xsavec
  xsaveopt xsaves
cpu amdfam10 barcelona: cmov cx8 fxsr lzcnt popcnt prfchw sbb-dep-breaking sse4a
cpu arrowlake: adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 clflushopt clwb cmov cmpccxadd
  crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b movdiri
  pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk vaes vpclmulqdq waitpkg
  widekl xsavec xsaveopt xsaves
cpu arrowlake-s arrowlake_s lunarlake: adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi
  bmi2 clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid
  lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize
  sha sha512 shstk sm3 sm4 vaes vpclmulqdq waitpkg widekl xsavec xsaveopt xsaves
cpu athlon athlon-tbird: cmov cx8 mmx prfchw
cpu athlon-4 athlon-mp athlon-xp: cmov cx8 fxsr mmx prfchw sse
cpu athlon-fx athlon64 k8 opteron: cmov cx8 fxsr mmx prfchw sbb-dep-breaking sse2
cpu athlon64-sse3 k8-sse3 opteron-sse3: cmov cx8 fxsr mmx prfchw sbb-dep-breaking sse3
cpu atom bonnell: cmov cx8 fxsr mmx movbe ssse3
cpu atom_sse4_2 silvermont slm: cmov crc32 cx8 fxsr mmx movbe pclmul popcnt prfchw rdrnd sse4.2
cpu atom_sse4_2_movbe goldmont: aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt
  prfchw rdrnd rdseed sha sse4.2 xsavec xsaveopt xsaves
cpu bdver1: aes cmov crc32 cx8 fxsr lwp lzcnt mmx pclmul popcnt prfchw sbb-dep-breaking xop xsave
cpu bdver2: aes bmi cmov crc32 cx8 f16c fma fxsr lwp lzcnt mmx pclmul popcnt prfchw sbb-dep-breaking
  tbm xop xsave
cpu bdver3: aes bmi cmov crc32 cx8 f16c fma fsgsbase fxsr lwp lzcnt mmx pclmul popcnt prfchw
  sbb-dep-breaking tbm xop xsaveopt
cpu bdver4: aes avx2 bmi bmi2 cmov crc32 cx8 f16c fma fsgsbase fxsr lwp lzcnt mmx movbe mwaitx
  pclmul popcnt prfchw rdrnd sbb-dep-breaking tbm xop xsaveopt
cpu broadwell core_5th_gen_avx core_5th_gen_avx_tsx: adx avx2 bmi bmi2 cmov crc32 cx8 ermsb f16c fma
  fsgsbase fxsr invpcid lzcnt mmx movbe pclmul popcnt prfchw rdrnd rdseed xsaveopt
cpu btver1: cmov cx8 fxsr lzcnt mmx popcnt prfchw sbb-dep-breaking sse4a ssse3
cpu btver2: aes bmi cmov crc32 cx8 f16c fxsr lzcnt mmx movbe pclmul popcnt prfchw sbb-dep-breaking
  sse4a xsaveopt
cpu c3 winchip2: mmx prfchw
cpu c3-2 pentium3 pentium3m pentium_iii pentium_iii_no_xmm_regs: cmov cx8 fxsr mmx sse
cpu cannonlake: adx aes avx512cd avx512dq avx512ifma avx512vbmi avx512vl bmi bmi2 clflushopt cmov
  crc32 cx8 ermsb fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed sha
  xsavec xsaveopt xsaves
cpu cascadelake: adx aes avx512bw avx512cd avx512dq avx512vl avx512vnni bmi bmi2 clflushopt clwb
  cmov crc32 cx8 ermsb fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed
  xsavec xsaveopt xsaves
cpu clearwaterforest: adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cldemote
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt
  mmx movbe movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed
  serialize sha sha512 shstk sm3 sm4 usermsr vaes vpclmulqdq waitpkg xsavec xsaveopt xsaves
cpu cooperlake: adx aes avx512bf16 avx512cd avx512dq avx512vl avx512vnni bmi bmi2 clflushopt clwb
  cmov crc32 cx8 ermsb fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt prfchw rdrnd rdseed
  xsavec xsaveopt xsaves
cpu core-avx-i core_3rd_gen_avx ivybridge: cmov crc32 cx8 f16c fsgsbase fxsr mmx pclmul popcnt rdrnd
  xsaveopt
cpu core-avx2 core_4th_gen_avx core_4th_gen_avx_tsx haswell: avx2 bmi bmi2 cmov crc32 cx8 ermsb f16c
  fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul popcnt rdrnd xsaveopt
cpu core2 core_2_duo_ssse3: cmov cx8 fxsr mmx ssse3
cpu core_2_duo_sse4_1 penryn: cmov cx8 fxsr mmx sse4.1
cpu core_2nd_gen_avx corei7-avx sandybridge: avx cmov crc32 cx8 fxsr mmx pclmul popcnt xsaveopt
cpu core_aes_pclmulqdq westmere: cmov crc32 cx8 fxsr mmx pclmul popcnt sse4.2
cpu core_i7_sse4_2 corei7 nehalem x86-64-v2: cmov crc32 cx8 fxsr mmx popcnt sse4.2
cpu diamondrapids: adx amx-avx512 amx-bf16 amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32
  avx10.2 avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 branch-hint cldemote
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd ermsb fsgsbase fsrm fxsr gfni invpcid lzcnt mmx
  movbe movdir64b movdiri movrs pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed
  serialize sha sha512 shstk sm3 sm4 tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd xsavec xsaveopt
  xsaves
cpu emeraldrapids sapphirerapids: adx amx-bf16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512dq
  avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2
  cldemote clflushopt clwb cmov crc32 cx8 enqcmd ermsb fsgsbase fsrm fxsr gfni invpcid lzcnt mmx
  movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk
  tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd xsavec xsaveopt xsaves
cpu generic i586 lakemont pentium: cx8
cpu geode k6-2 k6-3: cx8 mmx prfchw
cpu goldmont-plus goldmont_plus: aes clflushopt cmov crc32 cx8 fsgsbase fxsr mmx movbe pclmul popcnt
  prfchw ptwrite rdpid rdrnd rdseed sha sse4.2 xsavec xsaveopt xsaves
cpu grandridge sierraforest: adx avxifma avxneconvert avxvnni avxvnniint8 bmi bmi2 cldemote
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt
  mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha
  shstk vaes vpclmulqdq waitpkg widekl xsavec xsaveopt xsaves
cpu graniterapids: adx amx-bf16 amx-fp16 amx-int8 avx512bf16 avx512bitalg avx512cd avx512dq
  avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxvnni bmi bmi2
  branch-hint cldemote clflushopt clwb cmov crc32 cx8 enqcmd ermsb fsgsbase fsrm fxsr gfni invpcid
  lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed
  serialize sha shstk tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd xsavec xsaveopt xsaves
cpu graniterapids-d graniterapids_d: adx amx-bf16 amx-complex amx-fp16 amx-int8 avx512bf16
  avx512bitalg avx512cd avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni
  avx512vpopcntdq avxvnni bmi bmi2 branch-hint cldemote clflushopt clwb cmov crc32 cx8 enqcmd ermsb
  fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri pconfig pku popcnt prefetchi
  prfchw ptwrite rdpid rdrnd rdseed serialize sha shstk tsxldtrk vaes vpclmulqdq waitpkg wbnoinvd
  xsavec xsaveopt xsaves
cpu i386 i486:
cpu i686 pentium_pro pentiumpro: cmov cx8
cpu icelake-client icelake_client rocketlake: adx avx512bitalg avx512cd avx512dq avx512ifma
  avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt cmov crc32 cx8
  ermsb fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe pku popcnt prfchw rdpid rdrnd rdseed sha
  vaes vpclmulqdq xsavec xsaveopt xsaves
cpu icelake-server icelake_server: adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi
  avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb cmov crc32 cx8 ermsb
  fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe pconfig pku popcnt prfchw rdpid rdrnd rdseed sha
  vaes vpclmulqdq wbnoinvd xsavec xsaveopt xsaves
cpu k6 pentium-mmx pentium_mmx: cx8 mmx
cpu knl mic_avx512: adx aes avx512cd bmi bmi2 cmov crc32 cx8 fsgsbase fxsr lzcnt mmx movbe pclmul
  popcnt prfchw rdrnd rdseed xsaveopt
cpu knm: adx aes avx512cd avx512vpopcntdq bmi bmi2 cmov crc32 cx8 fsgsbase fxsr lzcnt mmx movbe
  pclmul popcnt prfchw rdrnd rdseed xsaveopt
cpu nocona pentium_4_sse3 prescott yonah: cmov cx8 fxsr mmx sse3
cpu novalake: adx avx10.2 avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 clflushopt
  clwb cmov cmpccxadd crc32 cx8 enqcmd fsgsbase fxsr gfni hreset invpcid lzcnt mmx movbe movdir64b
  movdiri movrs pconfig pku popcnt prefetchi prfchw ptwrite rdpid rdrnd rdseed serialize sha sha512
  shstk sm3 sm4 vaes vpclmulqdq waitpkg xsavec xsaveopt xsaves
cpu pantherlake wildcatlake: adx avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2
  clflushopt clwb cmov cmpccxadd crc32 cx8 enqcmd f16c fma fsgsbase fxsr gfni hreset invpcid lzcnt
  mmx movbe movdir64b movdiri pconfig pku popcnt prfchw ptwrite rdpid rdrnd rdseed serialize sha
  sha512 shstk sm3 sm4 vaes vpclmulqdq waitpkg xsavec xsaveopt xsaves
cpu pentium-m pentium4 pentium4m pentium_4 pentium_m x86-64: cmov cx8 fxsr mmx sse2
cpu pentium2 pentium_ii: cmov cx8 fxsr mmx
cpu skx skylake-avx512 skylake_avx512: adx aes avx512bw avx512cd avx512dq avx512vl bmi bmi2
  clflushopt clwb cmov crc32 cx8 ermsb fsgsbase fxsr invpcid lzcnt mmx movbe pclmul pku popcnt
  prfchw rdrnd rdseed xsavec xsaveopt xsaves
cpu skylake: adx aes avx2 bmi bmi2 clflushopt cmov crc32 cx8 ermsb f16c fma fsgsbase fxsr invpcid
  lzcnt mmx movbe pclmul popcnt prfchw rdrnd rdseed xsavec xsaveopt xsaves
cpu tigerlake: adx avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vp2intersect avx512vpopcntdq bmi bmi2 clflushopt clwb cmov crc32 cx8 ermsb
  fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri pku popcnt prfchw rdpid rdrnd
  rdseed sha shstk vaes vpclmulqdq xsavec xsaveopt xsaves
cpu tremont: aes clflushopt clwb cmov crc32 cx8 fsgsbase fxsr gfni mmx movbe pclmul popcnt prfchw
  ptwrite rdpid rdrnd rdseed sha sse4.2 xsavec xsaveopt xsaves
cpu winchip-c6: mmx
cpu x86-64-v3: avx2 bmi bmi2 cmov crc32 cx8 f16c fma fxsr lzcnt mmx movbe popcnt xsave
cpu x86-64-v4: avx512bw avx512cd avx512dq avx512vl bmi bmi2 cmov crc32 cx8 fxsr lzcnt mmx movbe
  popcnt xsave
cpu znver1: adx aes avx2 bmi bmi2 clflushopt clzero cmov crc32 cx8 f16c fma fsgsbase fxsr lzcnt mmx
  movbe mwaitx pclmul popcnt prfchw rdrnd rdseed sbb-dep-breaking sha sse4a xsavec xsaveopt xsaves
cpu znver2: adx aes avx2 bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 f16c fma fsgsbase fxsr lzcnt
  mmx movbe mwaitx pclmul popcnt prfchw rdpid rdpru rdrnd rdseed sbb-dep-breaking sha sse4a wbnoinvd
  xsavec xsaveopt xsaves
cpu znver3: adx bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 f16c fma fsgsbase fsrm fxsr invpcid
  lzcnt mmx movbe mwaitx pku popcnt prfchw rdpid rdpru rdrnd rdseed sbb-dep-breaking sha sse4a vaes
  vpclmulqdq wbnoinvd xsavec xsaveopt xsaves
cpu znver4: adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vpopcntdq bmi bmi2 clflushopt clwb clzero cmov crc32 cx8 fsgsbase fsrm fxsr gfni
  invpcid lzcnt mmx movbe mwaitx pku popcnt prfchw rdpid rdpru rdrnd rdseed sbb-dep-breaking sha
  shstk sse4a vaes vpclmulqdq wbnoinvd xsavec xsaveopt xsaves
cpu znver5: adx avx512bf16 avx512bitalg avx512cd avx512dq avx512ifma avx512vbmi avx512vbmi2 avx512vl
  avx512vnni avx512vp2intersect avx512vpopcntdq avxvnni bmi bmi2 clflushopt clwb clzero cmov crc32
  cx8 fsgsbase fsrm fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri mwaitx pku popcnt prefetchi
  prfchw rdpid rdpru rdrnd rdseed sbb-dep-breaking sha shstk sse4a vaes vpclmulqdq wbnoinvd xsavec
  xsaveopt xsaves
feature aes: sse2
feature amx-avx512: amx-tile
feature amx-bf16: amx-tile
feature amx-complex: amx-tile
feature amx-fp16: amx-tile
feature amx-fp8: amx-tile
feature amx-int8: amx-tile
feature amx-movrs: amx-tile
feature amx-tf32: amx-tile
feature avx: sse4.2
feature avx10.1: avx512bf16 avx512bitalg avx512cd avx512dq avx512fp16 avx512ifma avx512vbmi
  avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq
feature avx10.1-512: avx10.1
feature avx10.2: avx10.1
feature avx10.2-512: avx10.2
feature avx2: avx
feature avx512bf16: avx512bw
feature avx512bitalg: avx512bw
feature avx512bw: avx512f
feature avx512cd: avx512f
feature avx512dq: avx512f
feature avx512f: avx2 f16c fma
feature avx512fp16: avx512bw
feature avx512ifma: avx512f
feature avx512vbmi: avx512bw
feature avx512vbmi2: avx512bw
feature avx512vl: avx512f
feature avx512vnni: avx512f
feature avx512vp2intersect: avx512f
feature avx512vpopcntdq: avx512f
feature avxifma: avx2
feature avxneconvert: avx2
feature avxvnni: avx2
feature avxvnniint16: avx2
feature avxvnniint8: avx2
feature cx16: cx8
feature cx8: cx16
feature f16c: avx
feature fma: avx
feature fma4: avx sse4a
feature gfni: sse2
feature kl: sse2
feature pclmul: sse2
feature retpoline: retpoline-indirect-branches retpoline-indirect-calls
feature retpoline-external-thunk: retpoline-indirect-calls
feature seses: lvi-cfi
feature sha: sse2
feature sha512: avx2
feature sm3: avx
feature sm4: avx2
feature sse2: sse
feature sse3: sse2
feature sse4.1: ssse3
feature sse4.2: sse4.1
feature sse4a: sse3
feature ssse3: sse3
feature vaes: aes avx2
feature vpclmulqdq: avx pclmul
feature widekl: kl
feature xop: fma4
feature xsavec: xsave
feature xsaveopt: xsave
feature xsaves: xsave
features: 16bit-mode 32bit-mode 64bit 64bit-mode adx allow-light-256-bit amx-tile bmi bmi2
  branch-hint branchfusion ccmp cf cldemote clflushopt clwb clzero cmov cmpccxadd crc32 egpr enqcmd
  ermsb evex512 false-deps-getmant false-deps-lzcnt-tzcnt false-deps-mulc false-deps-mullq
  false-deps-perm false-deps-popcnt false-deps-range fast-11bytenop fast-15bytenop fast-7bytenop
  fast-bextr fast-dpwssd fast-gather fast-hops fast-imm16 fast-lzcnt fast-movbe fast-scalar-fsqrt
  fast-scalar-shift-masks fast-shld-rotate fast-variable-crosslane-shuffle
  fast-variable-perlane-shuffle fast-vector-fsqrt fast-vector-shift-masks faster-shift-than-shuffle
  fsgsbase fsrm fxsr harden-sls-ijmp harden-sls-ret hreset idivl-to-divb idivq-to-divl
  inline-asm-use-gpr32 invpcid lea-sp lea-uses-ag lvi-cfi lvi-load-hardening lwp lzcnt macrofusion
  mmx movbe movdir64b movdiri movrs mwaitx ndd nf no-bypass-delay no-bypass-delay-blend
  no-bypass-delay-mov no-bypass-delay-shuffle nopl pad-short-functions pconfig pku popcnt ppx
  prefer-128-bit prefer-256-bit prefer-legacy-setcc prefer-mask-registers prefer-movmsk-over-vtest
  prefer-no-gather prefer-no-scatter prefetchi prfchw ptwrite push2pop2 raoint rdpid rdpru rdrnd
  rdseed retpoline-indirect-branches retpoline-indirect-calls rtm sahf sbb-dep-breaking serialize
  sgx shstk slow-3ops-lea slow-incdec slow-lea slow-pmaddwd slow-pmulld slow-pmullq slow-shld
  slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32 soft-float sse sse-unaligned-mem
  tagged-globals tbm tsxldtrk tuning-fast-imm-vector-shift uintr use-glm-div-sqrt-costs
  use-slm-arith-costs usermsr vzeroupper waitpkg wbnoinvd x32 x87 xsave zu
"""
