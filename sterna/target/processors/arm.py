"""LLVM 22.1.0's names for arm, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu arm1020e arm1022e arm10e arm926ej-s arm946e-s arm966e-s arm968e-s arm9e iwmmxt xscale: armv5te
cpu arm1020t arm10tdmi: armv5t
cpu arm1136j-s: armv6
cpu arm1136jf-s: armv6 vfp2
cpu arm1156t2-s: armv6t2
cpu arm1156t2f-s: armv6t2 vfp2
cpu arm1176jz-s: armv6kz
cpu arm1176jzf-s: armv6kz vfp2
cpu arm710t arm720t arm7tdmi arm7tdmi-s arm9 arm920 arm920t arm922t arm940t arm9tdmi ep9312: armv4t
cpu arm8 arm810 strongarm strongarm110 strongarm1100 strongarm1110: armv4
cpu cortex-a12 cortex-a17: armv7-a mp ret-addr-stack trustzone vfp4 virtualization vmlx-forwarding
cpu cortex-a15: armv7-a mp muxed-units ret-addr-stack splat-vfp-neon trustzone vfp4 virtualization
  vldn-align
cpu cortex-a32 cortex-a35 cortex-a73 kryo: armv8-a
cpu cortex-a5: armv7-a mp ret-addr-stack trustzone vfp4 vmlx-forwarding
cpu cortex-a510 cortex-a710 neoverse-n2: armv9-a bf16 fp16fml i8mm
cpu cortex-a53: armv8-a fpao
cpu cortex-a55 cortex-a75 neoverse-n1: armv8.2-a dotprod
cpu cortex-a57: armv8-a cheap-predicable-cpsr fix-cortex-a57-aes-1742098 fpao
cpu cortex-a7: armv7-a mp ret-addr-stack trustzone vfp4 virtualization vmlx-forwarding vmlx-hazards
cpu cortex-a72: armv8-a fix-cortex-a57-aes-1742098
cpu cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-x1 cortex-x1c: armv8.2-a
  dotprod fullfp16
cpu cortex-a78c: a78c armv8.2-a dotprod fullfp16
cpu cortex-a8: armv7-a nonpipelined-vfp ret-addr-stack trustzone vmlx-forwarding vmlx-hazards
cpu cortex-a9: armv7-a fp16 mp muxed-units neon-fpmovs ret-addr-stack trustzone vldn-align
  vmlx-forwarding vmlx-hazards
cpu cortex-m0 cortex-m0plus cortex-m1 sc000: armv6-m
cpu cortex-m23: armv8-m.base
cpu cortex-m3 sc300: armv7-m
cpu cortex-m33 cortex-m35p star-mc1: armv8-m.main dsp fix-cmse-cve-2021-35465 fp-armv8d16sp
cpu cortex-m4: armv7e-m vfp4d16sp
cpu cortex-m52 star-mc3: armv8.1-m.main fp-armv8d16 mve.fp mve1beat pacbti
cpu cortex-m55: armv8.1-m.main fix-cmse-cve-2021-35465 fp-armv8d16 m55 mve.fp
cpu cortex-m7: armv7e-m branch-align-64 fp-armv8d16 m7
cpu cortex-m85: armv8.1-m.main branch-align-64 fp-armv8d16 m85 mve.fp pacbti
cpu cortex-r4: armv7-r ret-addr-stack
cpu cortex-r4f: armv7-r ret-addr-stack vfp3d16
cpu cortex-r5: armv7-r hwdiv-arm ret-addr-stack vfp3d16
cpu cortex-r52: armv8-r fp-armv8 fpao neon
cpu cortex-r52plus: armv8-r fp-armv8 fpao neon r52plus
cpu cortex-r7 cortex-r8: armv7-r fp16 hwdiv-arm mp ret-addr-stack vfp3d16
cpu cyclone: armv8-a neonfp ret-addr-stack zcz
cpu exynos-m3: armv8-a prof-unpr ret-addr-stack splat-vfp-neon wide-stride-vfp zcz
cpu exynos-m4 exynos-m5: armv8.2-a dotprod fullfp16 prof-unpr ret-addr-stack splat-vfp-neon
  wide-stride-vfp zcz
cpu generic:
cpu krait: armv7-a hwdiv hwdiv-arm muxed-units ret-addr-stack vfp4 vldn-align vmlx-forwarding
cpu mpcore: armv6k vfp2
cpu mpcorenovfp: armv6k
cpu neoverse-v1: armv8.4-a bf16 fullfp16 i8mm
cpu swift: armv7-a hwdiv hwdiv-arm mp neonfp prof-unpr ret-addr-stack vfp4 vmlx-hazards
  wide-stride-vfp
feature aes: neon
feature armv4t: v4t
feature armv5t: v5t
feature armv5te: v5te
feature armv5tej: v5te
feature armv6: dsp v6
feature armv6-m: db mclass strict-align thumb-mode v6m
feature armv6j: armv6
feature armv6k: v6k
feature armv6kz: trustzone v6k
feature armv6s-m: db mclass strict-align thumb-mode v6m
feature armv6t2: dsp v6t2
feature armv7-a: aclass db dsp neon perfmon v7
feature armv7-m: db hwdiv mclass thumb-mode v7
feature armv7-r: db dsp hwdiv perfmon rclass v7
feature armv7e-m: db dsp hwdiv mclass thumb-mode v7
feature armv7k: armv7-a
feature armv7s: armv7-a
feature armv7ve: aclass db dsp mp neon perfmon trustzone v7 virtualization
feature armv8-a: aclass crc crypto db dsp fp-armv8 mp trustzone v8 virtualization
feature armv8-m.base: 8msecext acquire-release db hwdiv mclass strict-align thumb-mode v7clrex v8m
feature armv8-m.main: 8msecext acquire-release db hwdiv mclass thumb-mode v8m.main
feature armv8-r: crc db dfb dsp fp-armv8d16sp mp rclass v8 virtualization
feature armv8.1-a: aclass crc crypto db dsp fp-armv8 mp trustzone v8.1a virtualization
feature armv8.1-m.main: 8msecext acquire-release db hwdiv lob mclass ras thumb-mode v8.1m.main
feature armv8.2-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.2a virtualization
feature armv8.3-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.3a virtualization
feature armv8.4-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.4a virtualization
feature armv8.5-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.5a virtualization
feature armv8.6-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.6a virtualization
feature armv8.7-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.7a virtualization
feature armv8.8-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.8a virtualization
feature armv8.9-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v8.9a virtualization
feature armv9-a: aclass crc db dsp fp-armv8 mp ras trustzone v9a virtualization
feature armv9.1-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.1a virtualization
feature armv9.2-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.2a virtualization
feature armv9.3-a: aclass crc crypto db dsp fp-armv8 mp ras trustzone v9.3a virtualization
feature armv9.4-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.4a virtualization
feature armv9.5-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.5a virtualization
feature armv9.6-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.6a virtualization
feature armv9.7-a: aclass crc db dsp fp-armv8 mp ras trustzone v9.7a virtualization
feature bf16: neon
feature cde: v8m.main
feature cdecp0: cde
feature cdecp1: cde
feature cdecp2: cde
feature cdecp3: cde
feature cdecp4: cde
feature cdecp5: cde
feature cdecp6: cde
feature cdecp7: cde
feature crypto: aes sha2
feature dotprod: neon
feature fp-armv8: fp-armv8d16 fp-armv8sp vfp4
feature fp-armv8d16: fp-armv8d16sp vfp4d16
feature fp-armv8d16sp: vfp4d16sp
feature fp-armv8sp: fp-armv8d16sp vfp4sp
feature fp16fml: fullfp16
feature fp64: fpregs64
feature fpregs16: fpregs
feature fpregs64: fpregs
feature fullfp16: fp-armv8d16sp fpregs16
feature i8mm: neon
feature iwmmxt: armv5te
feature iwmmxt2: armv5te
feature mve: dsp fpregs16 fpregs64 v8.1m.main
feature mve.fp: fullfp16 mve
feature neon: vfp3
feature sha2: neon
feature v5t: v4t
feature v5te: v5t
feature v6: v5te
feature v6k: v6
feature v6m: v6
feature v6t2: v6k v8m
feature v7: v6t2 v7clrex
feature v8: acquire-release perfmon v7
feature v8.1a: v8
feature v8.1m.main: v8m.main
feature v8.2a: v8.1a
feature v8.3a: v8.2a
feature v8.4a: dotprod v8.3a
feature v8.5a: sb v8.4a
feature v8.6a: bf16 i8mm v8.5a
feature v8.7a: v8.6a
feature v8.8a: v8.7a
feature v8.9a: clrbhb v8.8a
feature v8m: v6m
feature v8m.main: v7
feature v9.1a: v8.6a v9a
feature v9.2a: v8.7a v9.1a
feature v9.3a: v8.8a v9.2a
feature v9.4a: v8.9a v9.3a
feature v9.5a: v9.4a
feature v9.6a: v9.5a
feature v9.7a: v9.6a
feature v9a: v8.5a
feature vfp2: fp64 vfp2sp
feature vfp2sp: fpregs
feature vfp3: vfp3d16 vfp3sp
feature vfp3d16: vfp2 vfp3d16sp
feature vfp3d16sp: vfp2sp
feature vfp3sp: d32 vfp3d16sp
feature vfp4: vfp3 vfp4d16 vfp4sp
feature vfp4d16: vfp3d16 vfp4d16sp
feature vfp4d16sp: fp16 vfp3d16sp
feature vfp4sp: vfp3sp vfp4d16sp
feature virtualization: hwdiv hwdiv-arm
feature xscale: armv5te
features: 32bit 8msecext a12 a15 a17 a32 a35 a5 a53 a55 a57 a7 a72 a73 a75 a76 a77 a78c a8 a9
  aapcs-frame-chain aclass acquire-release armv4 atomics-32 avoid-movs-shop avoid-muls
  avoid-partial-cpsr big-endian-instructions branch-align-64 cheap-predicable-cpsr clrbhb
  cortex-a510 cortex-a710 cortex-a78 cortex-a78ae cortex-x1 cortex-x1c crc d32 db dfb
  disable-postra-scheduler dont-widen-vmovs dsp execute-only expand-fp-mlx exynos
  fix-cmse-cve-2021-35465 fix-cortex-a57-aes-1742098 fp16 fpao fpregs fuse-aes fuse-literals
  harden-sls-blr harden-sls-nocomdat harden-sls-retbr hwdiv hwdiv-arm krait kryo lob long-calls
  loop-align m3 m55 m7 m85 mclass mp muxed-units mve1beat mve2beat mve4beat neon-fpmovs neonfp
  neoverse-v1 no-branch-predictor no-bti-at-return-twice no-movt no-neg-immediates noarm
  nonpipelined-vfp pacbti perfmon prefer-ishst prefer-vmovsr prof-unpr r4 r5 r52 r52plus r7 ras
  rclass read-tp-tpidrprw read-tp-tpidruro read-tp-tpidrurw reserve-r9 ret-addr-stack sb
  slow-fp-brcc slow-load-D-subreg slow-odd-reg slow-vdup32 slow-vgetlni32 slowfpvfmx slowfpvmlx
  soft-float splat-vfp-neon strict-align swift thumb-mode thumb2 trustzone use-mipipeliner
  use-misched v4t v7clrex vldn-align vmlx-forwarding vmlx-hazards wide-stride-vfp zcz
arch armv4t: armv4t
arch armv5te: armv5te
arch armv6: armv6
arch armv6m: armv6-m
arch armv7a: armv7-a
arch armv7l: armv7-a
arch armv7r: armv7-r
arch armv7m: armv7-m
arch armv7em: armv7e-m
arch armv7s: armv7s
arch armv7k: armv7k
arch armv8a: armv8-a
arch armv8r: armv8-r
arch armv8m.base: armv8-m.base
arch armv8m.main: armv8-m.main
arch armv8.1m.main: armv8.1-m.main
"""
