"""LLVM 22.1.0's names for wasm, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu bleeding-edge: atomics bulk-memory exception-handling extended-const fp16 gc multimemory
  multivalue mutable-globals nontrapping-fptoint reference-types relaxed-simd sign-ext simd128
  tail-call
cpu generic: bulk-memory multivalue mutable-globals nontrapping-fptoint reference-types sign-ext
cpu lime1: bulk-memory-opt call-indirect-overlong extended-const multivalue mutable-globals
  nontrapping-fptoint sign-ext
cpu mvp:
feature bulk-memory: bulk-memory-opt
feature gc: call-indirect-overlong
feature reference-types: call-indirect-overlong
features: atomics bulk-memory-opt call-indirect-overlong exception-handling extended-const fp16
  multimemory multivalue mutable-globals nontrapping-fptoint relaxed-simd sign-ext simd128 tail-call
  wide-arithmetic
"""
