"""LLVM 22.1.0's names for amdgcn, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpus: bonaire carrizo fiji generic generic-hsa gfx10-1-generic gfx10-3-generic gfx1010 gfx1011
  gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036 gfx11-generic gfx1100
  gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx12-generic gfx1200 gfx1201 gfx1250
  gfx1251 gfx600 gfx601 gfx602 gfx700 gfx701 gfx702 gfx703 gfx704 gfx705 gfx801 gfx802 gfx803 gfx805
  gfx810 gfx9-4-generic gfx9-generic gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx942
  gfx950 hainan hawaii iceland kabini kaveri mullins oland pitcairn polaris10 polaris11 stoney
  tahiti tonga tongapro verde
features: 1024-addressable-vgprs 16-bit-insts 45-bit-num-records-buffer-resource 64-bit-literals
  DumpCode a16 add-min-max-insts add-no-carry-insts add-sub-u64-insts
  addressablelocalmemorysize163840 addressablelocalmemorysize32768 addressablelocalmemorysize327680
  addressablelocalmemorysize65536 agent-scope-fine-grained-remote-memory-atomics allocate1_5xvgprs
  aperture-regs architected-flat-scratch architected-sgprs ashr-pk-insts
  assembler-permissive-wavesize atomic-buffer-global-pk-add-f16-insts
  atomic-buffer-global-pk-add-f16-no-rtn-insts atomic-buffer-pk-add-bf16-inst
  atomic-csub-no-rtn-insts atomic-ds-pk-add-16-insts atomic-fadd-no-rtn-insts atomic-fadd-rtn-insts
  atomic-flat-pk-add-16-insts atomic-fmin-fmax-flat-f32 atomic-fmin-fmax-flat-f64
  atomic-fmin-fmax-global-f32 atomic-fmin-fmax-global-f64 atomic-global-pk-add-bf16-inst
  auto-waitcnt-before-barrier back-off-barrier bf16-cvt-insts bf16-pk-insts bf16-trans-insts
  bf8-cvt-scale-insts bitop3-insts block-vgpr-csr bvh-dual-bvh-8-insts ci-insts clusters cube-insts
  cumode cvt-fp8-vop1-bug cvt-norm-insts cvt-pk-f16-f32-inst cvt-pknorm-vop2-insts
  cvt-pknorm-vop3-insts d16-write-vgpr32 default-component-broadcast default-component-zero dl-insts
  dot1-insts dot10-insts dot11-insts dot12-insts dot13-insts dot2-insts dot3-insts dot4-insts
  dot5-insts dot6-insts dot7-insts dot8-insts dot9-insts dpp dpp-64bit dpp-src1-sgpr dpp8
  ds-src2-insts dumpcode emulated-system-scope-atomics enable-ds128 enable-flat-scratch
  enable-prt-strict-null extended-image-insts f16bf16-to-fp6bf6-cvt-scale-insts
  f32-to-f16bf16-cvt-sr-insts fast-denormal-f32 fast-fmaf flat-address-space
  flat-atomic-fadd-f32-inst flat-buffer-global-fadd-f64-inst flat-for-global flat-global-insts
  flat-gvs-mode flat-inst-offsets flat-scratch-insts flat-segment-offset-bug fma-mix-bf16-insts
  fma-mix-insts fmacf64-inst fmaf fp4-cvt-scale-insts fp64 fp6bf6-cvt-scale-insts
  fp8-conversion-insts fp8-cvt-scale-insts fp8-insts fp8e5m3-insts full-rate-64-ops g16
  gcn3-encoding gds get-wave-id-inst gfx10 gfx10-3-insts gfx10-insts gfx10_a-encoding
  gfx10_b-encoding gfx11 gfx11-insts gfx12 gfx12-insts gfx1250-insts gfx7-gfx8-gfx9-insts gfx8-insts
  gfx9 gfx9-insts gfx90a-insts gfx940-insts gfx950-insts globally-addressable-scratch gws
  half-rate-64-ops ieee-minimum-maximum-insts image-gather4-d16-bug image-insts image-store-d16-bug
  inst-fwd-prefetch-bug int-clamp-insts inv-2pi-inline-imm kernarg-preload lds-barrier-arrive-atomic
  lds-branch-vmem-war-hazard lds-misaligned-bug ldsbankcount16 ldsbankcount32 lerp-inst
  load-store-opt lshl-add-u64-inst mad-intra-fwd-bug mad-mac-f32-insts mad-mix-insts mad-u32-inst
  mai-insts max-hard-clause-length-32 max-hard-clause-length-63 max-private-element-size-16
  max-private-element-size-4 max-private-element-size-8 mcast-load-insts
  memory-atomic-fadd-f32-denormal-support mfma-inline-literal-bug mimg-r128 min3-max3-pkf16
  minimum3-maximum3-f16 minimum3-maximum3-f32 minimum3-maximum3-pkf16 movrel msaa-load-dst-sel-bug
  negative-scratch-offset-bug negative-unaligned-scratch-offset-bug no-data-dep-hazard no-sdst-cmpx
  nsa-clause-bug nsa-encoding nsa-to-vmem-bug offset-3f-bug packed-fp32-ops packed-tid
  partial-nsa-encoding permlane16-swap permlane32-swap pk-add-min-max-insts pk-fmac-f16-inst
  point-sample-accel precise-memory priv-enabled-trap2-nop-bug prng-inst promote-alloca
  pseudo-scalar-trans qsad-insts r128-a16 real-true16 relaxed-buffer-oob-mode
  required-export-priority requires-cov6 restricted-soffset s-memrealtime s-memtime-inst
  s-wakeup-barrier-inst sad-insts safe-cu-prefetch safe-smem-prefetch salu-float scalar-atomics
  scalar-dwordx3-loads scalar-flat-scratch-insts scalar-stores sdwa sdwa-mav sdwa-omod
  sdwa-out-mods-vopc sdwa-scalar sdwa-sdst sea-islands setprio-inc-wg-inst setreg-vgpr-msb-fixup
  sgpr-init-bug shader-cycles-hi-lo-registers shader-cycles-register si-scheduler
  smem-to-vector-write-hazard southern-islands sramecc sramecc-support tanh-insts
  tensor-cvt-lut-insts tgsplit transpose-load-f4f6-insts trap-handler trig-reduced-range true16
  unaligned-access-mode unaligned-buffer-access unaligned-ds-access unaligned-scratch-access
  unpacked-d16-vmem unsafe-ds-offset-folding user-sgpr-init16-bug valu-trans-use-hazard
  vcmpx-exec-war-hazard vcmpx-permlane-hazard vgpr-align2 vgpr-index-mode vmem-pref-insts
  vmem-to-lds-load-insts vmem-to-scalar-write-hazard vmem-write-vgpr-in-order volcanic-islands
  vop3-literal vop3p vopd vscnt wait-xcnt waits-before-system-scope-stores wavefrontsize16
  wavefrontsize32 wavefrontsize64 xf32-insts xnack xnack-support
"""
