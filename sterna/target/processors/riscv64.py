"""LLVM 22.1.0's names for riscv64, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu andes-ax25: 64bit a c d i m xandesperf zifencei
cpu andes-ax45 andes-nx45: 64bit a andes45 c d i m xandesperf zifencei
cpu andes-ax45mpv: 64bit a andes45 c i m v xandesperf zifencei
cpu generic generic-rv64: 64bit i
cpu mips-p8700: 64bit a c d i m mips-p8700 xmipscbop xmipscmov xmipsexectl xmipslsp zba zbb zifencei
cpu rocket-rv64: 64bit i zicsr zifencei
cpu sifive-p450: 64bit a b c d i m za64rs zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm
  ziccrse zifencei zihintntl zihintpause zihpm zkt
cpu sifive-p470: 64bit a b c i m v xsifivecdiscarddlone xsifivecflushdlone za64rs zfhmin zic64b
  zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zifencei zihintntl zihintpause zihpm zkt zvbb
  zvknc zvkng zvksc zvksg
cpu sifive-p550: 64bit a c d i m zba zbb zifencei
cpu sifive-p670: 64bit a b c i m v za64rs zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm
  ziccrse zifencei zihintntl zihintpause zihpm zkt zvbb zvknc zvkng zvksc zvksg
cpu sifive-p870: 64bit a b c i m supm v za64rs zama16b zawrs zcb zcmop zfa zfh zic64b zicbom zicbop
  zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei zihintntl zihintpause zihpm zimop
  zkr zkt zvbb zvfbfwma zvfh zvknc zvkng zvksc zvksg
cpu sifive-s21 sifive-s51 syntacore-scr3-rv64: 64bit a c i m zicsr zifencei
cpu sifive-s54 sifive-u54 syntacore-scr4-rv64 syntacore-scr5-rv64: 64bit a c d i m zifencei
cpu sifive-s76: 64bit a c d i m sifive7 zifencei zihintpause
cpu sifive-u74: 64bit a c d i m sifive7 zifencei
cpu sifive-x280: 64bit a c i m sifive7 v zba zbb zfh zifencei zvfh zvl512b
cpu sifive-x390: 64bit a b c i m sifive7 single-element-vec-fp64 v xsifivecdiscarddlone
  xsifivecflushdlone za64rs zawrs zcb zcmop zfa zfh zic64b zicbom zicbop zicboz ziccamoa ziccif
  ziccrse zicntr zicond zifencei zihintntl zihintpause zihpm zimop zkr zkt zvbb zvfbfwma zvfh zvkt
  zvl1024b
cpu spacemit-x60: 64bit a b c i m ssccptr sscofpmf sscounterenw sstc sstvala sstvecd svade svbare
  svinval svnapot svpbmt v xsmtvdot za64rs zbc zbkc zfh zic64b zicbom zicbop zicboz ziccamoa ziccif
  zicclsm ziccrse zicntr zicond zifencei zihintpause zihpm zkt zvfh zvkt zvl256b
cpu syntacore-scr7: 64bit a c i m v zba zbb zbc zbs zifencei zkn
cpu tt-ascalon-d8: 64bit a b c i m sha smaia ssaia ssccptr sscofpmf sscounterenw ssnpm ssstrict sstc
  sstvala sstvecd ssu64xl supm svade svbare svinval svnapot svpbmt v za64rs zawrs zcb zcmop zfa zfh
  zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei zihintntl
  zihintpause zihpm zimop zkt zvbb zvbc zvfbfwma zvfh zvkng zvl256b
cpu veyron-v1: 64bit a c d i m ventana-veyron xventanacondops zba zbb zbc zbs zicbom zicbop zicboz
  zicntr zifencei zihintpause zihpm
cpu xiangshan-kunminghu: 64bit a b c i m sha smaia smcsrind smdbltrp smmpm smnpm smrnmi smstateen
  ssaia ssccptr sscofpmf sscounterenw sscsrind ssdbltrp ssnpm sspm ssstrict sstc sstvala sstvecd
  ssu64xl supm svade svbare svinval svnapot svpbmt v za64rs zacas zawrs zbc zcb zcmop zfa zfh zic64b
  zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei zihintntl zihintpause
  zihpm zimop zkn zks zkt zvbb zvfh zvkt
cpu xiangshan-nanhu: 64bit a c d i m svinval zba zbb zbc zbs zicbom zicboz zifencei zkn zksed zksh
feature a: zaamo zalrsc
feature b: zba zbb zbs
feature c: zca
feature d: f
feature f: zicsr
feature m: zmmul
feature q: d
feature rva20s64: a c d m ssccptr sstvala sstvecd svade svbare za128rs ziccamoa ziccif zicclsm
  ziccrse zicntr zifencei
feature rva20u64: a c d m za128rs ziccamoa ziccif zicclsm ziccrse zicntr
feature rva22s64: a b c d m ssccptr sscounterenw sstvala sstvecd svade svbare svinval svpbmt za64rs
  zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zifencei zihintpause
  zihpm zkt
feature rva22u64: a b c d m za64rs zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm
  ziccrse zicntr zihintpause zihpm zkt
feature rva23s64: a b c m sha ssccptr sscofpmf sscounterenw ssnpm sstc sstvala sstvecd ssu64xl supm
  svade svbare svinval svnapot svpbmt v za64rs zawrs zcb zcmop zfa zfhmin zic64b zicbom zicbop
  zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei zihintntl zihintpause zihpm zimop
  zkt zvbb zvfhmin zvkt
feature rva23u64: a b c m supm v za64rs zawrs zcb zcmop zfa zfhmin zic64b zicbom zicbop zicboz
  ziccamoa ziccif zicclsm ziccrse zicntr zicond zihintntl zihintpause zihpm zimop zkt zvbb zvfhmin
  zvkt
feature rvb23s64: a b c d m ssccptr sscofpmf sscounterenw sstc sstvala sstvecd ssu64xl svade svbare
  svinval svnapot svpbmt za64rs zawrs zcb zcmop zfa zic64b zicbom zicbop zicboz ziccamoa ziccif
  zicclsm ziccrse zicntr zicond zifencei zihintntl zihintpause zihpm zimop zkt
feature rvb23u64: a b c d m za64rs zawrs zcb zcmop zfa zic64b zicbom zicbop zicboz ziccamoa ziccif
  zicclsm ziccrse zicntr zicond zihintntl zihintpause zihpm zimop zkt
feature sha: h shcounterenw shgatpa shtvala shvsatpa shvstvala shvstvecd ssstateen
feature smctr: sscsrind
feature smdbltrp: zicsr
feature ssctr: sscsrind
feature ssdbltrp: zicsr
feature v: zve64d zvl128b
feature xandesbfhcvt: f
feature xandesvbfhcvt: zve32f
feature xandesvdot: zve32x
feature xandesvpackfph: f
feature xandesvsinth: zve32x
feature xandesvsintload: zve32x
feature xsfmm128t: xsfmmbase zvl512b
feature xsfmm16t: xsfmmbase zvl64b
feature xsfmm32a16f: xsfmmbase zve32f
feature xsfmm32a32f: xsfmmbase zve32f
feature xsfmm32a8f: xsfmmbase zve32f
feature xsfmm32a8i: xsfmmbase
feature xsfmm32t: xsfmmbase zvl128b
feature xsfmm64a64f: xsfmmbase zve64d
feature xsfmm64t: xsfmmbase zvl256b
feature xsfmmbase: zve32x
feature xsfvcp: zve32x
feature xsfvfexp16e: zvfh
feature xsfvfexp32e: zve32f
feature xsfvfexpa: zve32f
feature xsfvfexpa64e: xsfvfexpa zve64d
feature xsfvfnrclipxfqf: zve32f
feature xsfvfwmaccqqq: zvfbfmin zvl128b
feature xsfvqmaccdod: zve32x zvl128b
feature xsfvqmaccqoq: zve32x zvl256b
feature xsmtvdot: zve32f
feature xtheadvdot: v
feature zabha: zaamo
feature zacas: zaamo
feature zcb: zca
feature zcd: d zca
feature zcmop: zca
feature zfa: f
feature zfbfmin: f
feature zfh: zfhmin
feature zfhmin: f
feature zicntr: zicsr
feature zihpm: zicsr
feature zk: zkn zkr zkt
feature zkn: zbkb zbkc zbkx zknd zkne zknh
feature zks: zbkb zbkc zbkx zksed zksh
feature zvbb: zvkb
feature zvbc: zve64x
feature zve32f: f zve32x
feature zve32x: zicsr zvl32b
feature zve64d: d zve64f
feature zve64f: zve32f zve64x
feature zve64x: zve32x zvl64b
feature zvfbfmin: zve32f
feature zvfbfwma: zfbfmin zvfbfmin
feature zvfh: zfhmin zvfhmin
feature zvfhmin: zve32f
feature zvkb: zve32x
feature zvkg: zve32x
feature zvkn: zvkb zvkned zvknhb zvkt
feature zvknc: zvbc zvkn
feature zvkned: zve32x
feature zvkng: zvkg zvkn
feature zvknha: zve32x
feature zvknhb: zve64x
feature zvks: zvkb zvksed zvksh zvkt
feature zvksc: zvbc zvks
feature zvksed: zve32x
feature zvksg: zvkg zvks
feature zvksh: zve32x
feature zvl1024b: zvl512b
feature zvl128b: zvl64b
feature zvl16384b: zvl8192b
feature zvl2048b: zvl1024b
feature zvl256b: zvl128b
feature zvl32768b: zvl16384b
feature zvl4096b: zvl2048b
feature zvl512b: zvl256b
feature zvl64b: zvl32b
feature zvl65536b: zvl32768b
feature zvl8192b: zvl4096b
features: 32bit 64bit add-load-fusion addi-load-fusion andes45 auipc-addi-fusion auipc-load-fusion
  bfext-fusion conditional-cmv-fusion disable-latency-sched-heuristic
  disable-misched-load-clustering disable-misched-store-clustering
  disable-postmisched-load-clustering disable-postmisched-store-clustering dlen-factor-2 e
  enable-vsetvli-sched-heuristic exact-asm experimental experimental-p experimental-rvm23u32
  experimental-smpmpmt experimental-svukte experimental-xrivosvisni experimental-xrivosvizip
  experimental-xsfmclic experimental-xsfsclic experimental-zibi experimental-zicfilp
  experimental-zicfiss experimental-zvbc32e experimental-zvfbfa experimental-zvfofp8min
  experimental-zvkgs experimental-zvqdotq forced-atomics h i ld-add-fusion log-vrgather
  lui-addi-fusion lui-load-fusion mips-p8700 no-default-unroll no-sink-splat-operands
  no-trailing-seq-cst-fence optimized-nf2-segment-load-store optimized-nf3-segment-load-store
  optimized-nf4-segment-load-store optimized-nf5-segment-load-store optimized-nf6-segment-load-store
  optimized-nf7-segment-load-store optimized-nf8-segment-load-store optimized-zero-stride-load
  permissive-zalrsc predictable-select-expensive prefer-vsetvli-over-read-vlenb prefer-w-inst relax
  reserve-x1 reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14 reserve-x15 reserve-x16
  reserve-x17 reserve-x18 reserve-x19 reserve-x2 reserve-x20 reserve-x21 reserve-x22 reserve-x23
  reserve-x24 reserve-x25 reserve-x26 reserve-x27 reserve-x28 reserve-x29 reserve-x3 reserve-x30
  reserve-x31 reserve-x4 reserve-x5 reserve-x6 reserve-x7 reserve-x8 reserve-x9 rvi20u32 rvi20u64
  save-restore sdext sdtrig shcounterenw shgatpa shifted-zextw-fusion shlcofideleg
  short-forward-branch-ialu short-forward-branch-iload short-forward-branch-iminmax
  short-forward-branch-imul shtvala shvsatpa shvstvala shvstvecd shxadd-load-fusion sifive7
  single-element-vec-fp64 smaia smcdeleg smcntrpmf smcsrind smepmp smmpm smnpm smrnmi smstateen
  ssaia ssccfg ssccptr sscofpmf sscounterenw sscsrind ssnpm sspm ssqosid ssstateen ssstrict sstc
  sstvala sstvecd ssu64xl supm svade svadu svbare svinval svnapot svpbmt svvptc tagged-globals
  unaligned-scalar-mem unaligned-vector-mem use-postra-scheduler ventana-veyron vl-dependent-latency
  vxrm-pipeline-flush xandesperf xcvalu xcvbi xcvbitmanip xcvelw xcvmac xcvmem xcvsimd xmipscbop
  xmipscmov xmipsexectl xmipslsp xqccmp xqci xqcia xqciac xqcibi xqcibm xqcicli xqcicm xqcics
  xqcicsr xqciint xqciio xqcilb xqcili xqcilia xqcilo xqcilsm xqcisim xqcisls xqcisync xsfcease
  xsfvfbfexp16e xsifivecdiscarddlone xsifivecflushdlone xtheadba xtheadbb xtheadbs xtheadcmo
  xtheadcondmov xtheadfmemidx xtheadmac xtheadmemidx xtheadmempair xtheadsync xventanacondops xwchc
  za128rs za64rs zaamo zalasr zalrsc zama16b zawrs zba zbb zbc zbkb zbkc zbkx zbs zca zce zcf zclsd
  zcmp zcmt zdinx zexth-fusion zextw-fusion zfinx zhinx zhinxmin zic64b zicbom zicbop zicboz
  ziccamoa ziccamoc ziccif zicclsm ziccrse zicond zicsr zifencei zihintntl zihintpause zilsd
  zilsd-4byte-align zimop zknd zkne zknh zkr zksed zksh zkt zmmul ztso zvkt zvl32b
"""
