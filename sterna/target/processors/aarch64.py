"""LLVM 22.1.0's names for aarch64, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu a64fx: aes aggressive-fma complxnum execute-only perfmon sha2 store-pair-suppress sve v8.2a
cpu ampere1: aes aggressive-fma ccidx execute-only fullfp16 perfmon rand sha3 ssbs
  store-pair-suppress v8.6a
cpu ampere1a: aes aggressive-fma ccidx execute-only fullfp16 mte perfmon rand sha3 sm4 ssbs
  store-pair-suppress v8.6a
cpu ampere1b: aes aggressive-fma ccidx cssc enable-select-opt execute-only fullfp16 mte perfmon rand
  sha3 sm4 ssbs store-pair-suppress v8.7a
cpu ampere1c: aggressive-fma ccidx cssc enable-select-opt execute-only faminmax fp16fml fp8fma lut
  mte perfmon rand ssbs store-pair-suppress sve-aes sve-b16b16 sve-sha3 sve-sm4 sve2 v9.2a
cpu apple-a10: aes crc execute-only lor pan perfmon rdm sha2 store-pair-suppress v8a vh
cpu apple-a11: aes execute-only fullfp16 perfmon sha2 store-pair-suppress v8.2a
cpu apple-a12 apple-s4 apple-s5: aes execute-only fullfp16 perfmon sha2 store-pair-suppress v8.3a
cpu apple-a13 apple-s6 apple-s7 apple-s8: aes execute-only fp16fml perfmon sha3 store-pair-suppress
  v8.4a
cpu apple-a14 apple-m1: aes aggressive-fma altnzcv ccdp execute-only fp16fml fptoint perfmon predres
  sb sha3 specrestrict ssbs store-pair-suppress v8.4a
cpu apple-a15 apple-m2: aes execute-only fp16fml fpac perfmon sha3 ssbs store-pair-suppress v8.6a
cpu apple-a16 apple-a17 apple-m3 apple-s10 apple-s9: aes execute-only fp16fml fpac hcx perfmon sha3
  ssbs store-pair-suppress v8.6a
cpu apple-a18 apple-m4: aes execute-only fp16fml fpac perfmon sha3 sme-f64f64 sme-i16i64 sme2 v8.7a
cpu apple-a19 apple-m5: aes cssc execute-only fp16fml fpac hbc mte perfmon sha3 sme-b16b16
  sme-f16f16 sme-f64f64 sme-i16i64 sme2p1 specres2 v8.7a
cpu apple-a7 apple-a8 apple-a9 cyclone: aes execute-only perfmon sha2 store-pair-suppress v8a
cpu c1-nano: ccidx chk clrbhb ete execute-only fp16fml fpac mte perfmon rcpc3 sme2 specres2 ssbs
  sve-bitperm sve2 trbe v9.3a
cpu c1-premium c1-pro c1-ultra: ccidx chk clrbhb enable-select-opt ete execute-only fp16fml fpac mte
  perfmon rcpc3 sme2 spe spe-eef specres2 ssbs sve-bitperm sve2 trbe v9.3a
cpu carmel: aes execute-only fullfp16 sha2 v8.2a
cpu cobalt-100 cortex-a710 cortex-x2 neoverse-n2: bf16 ccidx enable-select-opt ete execute-only
  fp16fml fpac i8mm mte perfmon ssbs sve-bitperm sve2 trbe v9a
cpu cortex-a320: ccidx ete execute-only fp16fml mte perfmon ssbs sve-bitperm sve2 trbe v9.2a
cpu cortex-a34 cortex-a35 cortex-a53: aes crc execute-only perfmon sha2 v8a
cpu cortex-a510: bf16 ccidx ete execute-only fp16fml fpac i8mm mte perfmon ssbs sve-bitperm sve2
  trbe v9a
cpu cortex-a520 cortex-a520ae: ccidx ete execute-only fp16fml fpac mte perfmon ssbs sve-bitperm sve2
  trbe v9.2a
cpu cortex-a55: aes dotprod execute-only fullfp16 perfmon rcpc sha2 v8.2a
cpu cortex-a57 cortex-a72 cortex-a73: aes crc enable-select-opt execute-only perfmon sha2 v8a
cpu cortex-a65 cortex-a65ae cortex-a76 cortex-a76ae cortex-a77: aes dotprod enable-select-opt
  execute-only fullfp16 perfmon rcpc sha2 ssbs v8.2a
cpu cortex-a715 cortex-x3: bf16 ccidx enable-select-opt ete execute-only fp16fml fpac i8mm mte
  perfmon spe ssbs sve-bitperm sve2 trbe v9a
cpu cortex-a720 cortex-a720ae cortex-a725 cortex-x4 cortex-x925: ccidx enable-select-opt ete
  execute-only fp16fml fpac mte perfmon spe spe-eef ssbs sve-bitperm sve2 trbe v9.2a
cpu cortex-a75: aes dotprod enable-select-opt execute-only fullfp16 perfmon rcpc sha2 v8.2a
cpu cortex-a78 cortex-a78ae cortex-x1 neoverse-n1: aes dotprod enable-select-opt execute-only
  fullfp16 perfmon rcpc sha2 spe ssbs v8.2a
cpu cortex-a78c: aes dotprod enable-select-opt execute-only flagm fullfp16 pauth perfmon rcpc sha2
  spe ssbs v8.2a
cpu cortex-r82 cortex-r82ae: ccdp complxnum dotprod execute-only fp16fml fpac jsconv perfmon predres
  rdm sb ssbs v8r
cpu cortex-x1c: aes dotprod enable-select-opt execute-only flagm fullfp16 lse2 pauth perfmon
  rcpc-immo sha2 spe ssbs v8.2a
cpu exynos-m3 kryo thunderx thunderxt81 thunderxt83 thunderxt88: aes crc execute-only perfmon sha2
  store-pair-suppress v8a
cpu exynos-m4 exynos-m5: aes dotprod execute-only fullfp16 perfmon sha2 store-pair-suppress v8.2a
cpu falkor: aes crc execute-only perfmon rdm sha2 store-pair-suppress v8a
cpu fujitsu-monaka: ccidx clrbhb enable-select-opt ete execute-only faminmax fp16fml fp8dot2 fp8dot4
  fp8fma fpac ls64 lut mec perfmon rand specres2 ssbs sve-aes sve-bitperm sve-sha3 sve-sm4 sve2 trbe
  v9.3a
cpu gb10: ccidx enable-select-opt ete execute-only fp16fml fpac mte perfmon spe spe-eef ssbs sve-aes
  sve-bitperm sve-sha3 sve-sm4 sve2 trbe v9.2a
cpu generic: enable-select-opt ete execute-only neon trbe
cpu grace: bf16 ccidx enable-select-opt ete execute-only fp16fml fpac i8mm mte perfmon spe ssbs
  sve-aes sve-bitperm sve-sha3 sve-sm4 sve2 trbe v9a
cpu neoverse-512tvb: aes bf16 ccdp ccidx enable-select-opt execute-only fp16fml fpac i8mm perfmon
  rand sha3 sm4 spe ssbs sve v8.4a
cpu neoverse-e1: aes dotprod execute-only fullfp16 perfmon rcpc sha2 ssbs v8.2a
cpu neoverse-n3: ccidx enable-select-opt ete execute-only fp16fml fpac mte perfmon rand spe spe-eef
  ssbs sve-bitperm sve2 trbe v9.2a
cpu neoverse-v1: aes bf16 ccdp ccidx enable-select-opt execute-only fp16fml i8mm perfmon rand sha3
  sm4 spe ssbs sve v8.4a
cpu neoverse-v2: bf16 ccidx enable-select-opt ete execute-only fp16fml fpac i8mm mte perfmon rand
  spe ssbs sve-bitperm sve2 trbe v9a
cpu neoverse-v3 neoverse-v3ae: brbe ccidx enable-select-opt ete execute-only fp16fml fpac ls64 mte
  perfmon rand rme spe spe-eef ssbs sve-bitperm sve2 trbe v9.2a
cpu olympus: brbe ccidx chk enable-select-opt ete execute-only faminmax fp16fml fp8dot2 fp8dot4
  fp8fma fpac ls64 lut mec mte perfmon rand spe spe-eef ssbs sve-aes sve-bitperm sve-sha3 sve-sm4
  sve2 trbe v9.2a
cpu oryon-1: aes ccidx enable-select-opt execute-only fp16fml perfmon rand sha3 sm4 spe ssbs v8.6a
cpu saphira: aes ccidx execute-only perfmon sha2 spe store-pair-suppress v8.4a
cpu thunderx2t99: aes aggressive-fma execute-only sha2 store-pair-suppress v8.1a
cpu thunderx3t110: aes aggressive-fma ccidx execute-only perfmon sha2 store-pair-suppress v8.3a
cpu tsv110: aes complxnum dotprod execute-only fp16fml jsconv perfmon sha2 spe store-pair-suppress
  v8.2a
feature aes: neon
feature altnzcv: flagm
feature amvs: am
feature bf16: neon
feature ccdp: ccpp
feature complxnum: neon
feature crypto: aes sha2
feature d128: lse128
feature dotprod: neon
feature f16f32dot: fullfp16 neon
feature f16f32mm: fullfp16 neon
feature f16mm: fullfp16
feature f32mm: sve
feature f64mm: sve
feature f8f16mm: fp8
feature f8f32mm: fp8
feature faminmax: neon
feature fp16fml: fullfp16 neon
feature fp8: neon
feature fp8dot2: fp8
feature fp8dot4: fp8
feature fp8fma: fp8
feature fprcvt: fp-armv8
feature fptoint: fp-armv8
feature fullfp16: fp-armv8
feature gcs: chk
feature i8mm: neon
feature jsconv: fp-armv8
feature lse128: lse
feature lsfe: fp-armv8
feature lut: neon
feature mec: rme
feature mops-go: mops mte
feature mtetc: mte
feature neon: fp-armv8
feature pan-rwv: pan
feature rasv2: ras
feature rcpc-immo: rcpc
feature rcpc3: rcpc-immo
feature rdm: neon
feature sha2: neon
feature sha3: sha2
feature sm4: neon
feature sme: bf16 fullfp16
feature sme-b16b16: sme2 sve-b16b16
feature sme-f16f16: sme2
feature sme-f64f64: sme
feature sme-f8f16: fp8 sme2
feature sme-f8f32: fp8 sme2
feature sme-fa64: sme sve2
feature sme-i16i64: sme
feature sme-lutv2: sme2
feature sme-mop4: sme2
feature sme-tmop: sme2
feature sme2: sme
feature sme2p1: sme2
feature sme2p2: sme2p1
feature sme2p3: sme2p2
feature specres2: predres
feature ssve-aes: sme2 sve-aes
feature ssve-bitperm: sme2 sve-bitperm
feature ssve-fexpa: sme2
feature ssve-fp8dot2: fp8 sme2
feature ssve-fp8dot4: fp8 sme2
feature ssve-fp8fma: fp8 sme2
feature sve: fullfp16
feature sve-aes: aes
feature sve-b16mm: sve
feature sve-f16f32mm: sve
feature sve-sha3: sha3
feature sve-sm4: sm4
feature sve2: sve
feature sve2p1: sve2
feature sve2p2: sve2p1
feature sve2p3: sve2p2
feature v8.1a: crc lor lse pan rdm v8a vh
feature v8.2a: ccpp pan-rwv ras uaops v8.1a
feature v8.3a: complxnum jsconv pauth rcpc v8.2a
feature v8.4a: am dit dotprod flagm lse2 mpam nv rcpc-immo sel2 tlb-rmi tracev8.4 v8.3a
feature v8.5a: altnzcv bti ccdp fptoint predres sb specrestrict v8.4a
feature v8.6a: amvs bf16 ecv fgt i8mm v8.5a
feature v8.7a: hcx v8.6a wfxt xs
feature v8.8a: hbc mops nmi v8.7a
feature v8.9a: chk clrbhb cssc prfm-slc-target rasv2 specres2 v8.8a
feature v8a: el2vmsa el3
feature v8r: CONTEXTIDREL2 ccpp crc dit flagm lse pan-rwv pauth ras rcpc-immo sel2 specrestrict
  tlb-rmi tracev8.4 uaops
feature v9.1a: v8.6a v9a
feature v9.2a: v8.7a v9.1a
feature v9.3a: v8.8a v9.2a
feature v9.4a: v8.9a v9.3a
feature v9.5a: cpa v9.4a
feature v9.6a: cmpbr lsui occmo v9.5a
feature v9.7a: fprcvt sve2p3 v9.6a
feature v9a: v8.5a
feature vh: CONTEXTIDREL2
features: CONTEXTIDREL2 a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae
  a73 a75 a76 a77 a78 a78ae a78c addr-lsl-slow-14 aggressive-fma aggressive-interleaving all
  alternate-sextload-cvt-f32-pattern alu-lsl-fast am ampere1 ampere1a ampere1b ampere1c apple-a10
  apple-a11 apple-a12 apple-a13 apple-a14 apple-a15 apple-a16 apple-a17 apple-a7 apple-m4 apple-m5
  arith-bcc-fusion arith-cbz-fusion ascend-store-address avoid-ldapur balance-fp-ops brbe bti btie
  c1-nano c1-premium c1-pro c1-ultra call-saved-x10 call-saved-x11 call-saved-x12 call-saved-x13
  call-saved-x14 call-saved-x15 call-saved-x18 call-saved-x8 call-saved-x9 carmel ccidx ccpp chk
  clrbhb cmh cmp-bcc-fusion cmpbr cortex-a725 cortex-r82 cortex-r82ae cortex-x1 cortex-x2 cortex-x3
  cortex-x4 cortex-x925 cpa crc cssc disable-fast-inc-vl disable-latency-sched-heuristic disable-ldp
  disable-maximize-scalable-bandwidth disable-stp disable-unpredicated-ld-st-lower dit ecv el2vmsa
  el3 enable-select-opt ete execute-only exynos-cheap-as-move exynosm3 exynosm4 falkor fgt
  fix-cortex-a53-835769 flagm fmv force-32bit-jump-tables fp-armv8 fpac fujitsu-monaka fuse-address
  fuse-addsub-2reg-const1 fuse-adrp-add fuse-aes fuse-arith-logic fuse-crypto-eor fuse-csel
  fuse-cset fuse-literals gcie harden-sls-blr harden-sls-nocomdat harden-sls-retbr hbc hcx ite kryo
  ldp-aligned-only lor ls64 lscp lse lse2 lsui max-interleave-factor-4 mops mpam mpamv2 mte
  neoverse512tvb neoversee1 neoversen1 neoversen2 neoversen3 neoversev1 neoversev2 neoversev3
  neoversev3AE nmi no-bti-at-return-twice no-neg-immediates no-sve-fp-ld1r no-zcz-fpr64 nv occmo
  olympus oryon-1 outline-atomics pan pauth pauth-lr pcdphint perfmon poe2 pops
  predictable-select-expensive predres prfm-slc-target rand ras rcpc reserve-lr-for-ra reserve-x1
  reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14 reserve-x15 reserve-x18 reserve-x2
  reserve-x20 reserve-x21 reserve-x22 reserve-x23 reserve-x24 reserve-x25 reserve-x26 reserve-x27
  reserve-x28 reserve-x3 reserve-x4 reserve-x5 reserve-x6 reserve-x7 reserve-x9 rme saphira sb sel2
  slow-misaligned-128store slow-paired-128 slow-strqro-store spe spe-eef specrestrict ssbs
  store-pair-suppress stp-aligned-only strict-align sve-aes2 sve-b16b16 sve-bfscale sve-bitperm
  sve2-aes sve2-bitperm sve2-sha3 sve2-sm4 tagged-globals tev the thunderx thunderx2t99
  thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tlb-rmi tlbid tlbiw tpidr-el1 tpidr-el2
  tpidr-el3 tpidrro-el0 tracev8.4 trbe tsv110 uaops use-experimental-zeroing-pseudos
  use-fixed-over-scalable-if-equal-cost use-postra-scheduler use-reciprocal-square-root
  use-wzr-to-vec-move wfxt xs zcm-fpr128 zcm-fpr32 zcm-fpr64 zcm-gpr32 zcm-gpr64 zcz-fp-workaround
  zcz-fpr128 zcz-gpr32 zcz-gpr64
"""
