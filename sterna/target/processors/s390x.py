"""LLVM 22.1.0's names for s390x, each with what it brings along.

Written by sterna/target/list_llvm_names.py; do not edit.
"""

TEXT = """\
cpu arch10 zEC12: dfp-zoned-conversion distinct-ops enhanced-dat-2 execution-hint fp-extension
  high-word interlocked-access1 load-and-trap load-store-on-cond message-security-assist-extension3
  message-security-assist-extension4 miscellaneous-extensions population-count processor-assist
  reset-reference-bits-multiple transactional-execution
cpu arch11 z13: dfp-packed-conversion dfp-zoned-conversion distinct-ops enhanced-dat-2
  execution-hint fp-extension high-word interlocked-access1 load-and-trap
  load-and-zero-rightmost-byte load-store-on-cond load-store-on-cond-2
  message-security-assist-extension3 message-security-assist-extension4
  message-security-assist-extension5 miscellaneous-extensions population-count processor-assist
  reset-reference-bits-multiple transactional-execution vector
cpu arch12 z14: dfp-packed-conversion dfp-zoned-conversion distinct-ops enhanced-dat-2
  execution-hint fp-extension guarded-storage high-word insert-reference-bits-multiple
  interlocked-access1 load-and-trap load-and-zero-rightmost-byte load-store-on-cond
  load-store-on-cond-2 message-security-assist-extension3 message-security-assist-extension4
  message-security-assist-extension5 message-security-assist-extension7
  message-security-assist-extension8 miscellaneous-extensions miscellaneous-extensions-2
  population-count processor-assist reset-reference-bits-multiple test-pending-external-interruption
  transactional-execution vector vector-enhancements-1 vector-packed-decimal
cpu arch13 z15: deflate-conversion dfp-packed-conversion dfp-zoned-conversion distinct-ops
  enhanced-dat-2 enhanced-sort execution-hint fp-extension guarded-storage high-word
  insert-reference-bits-multiple interlocked-access1 load-and-trap load-and-zero-rightmost-byte
  load-store-on-cond load-store-on-cond-2 message-security-assist-extension3
  message-security-assist-extension4 message-security-assist-extension5
  message-security-assist-extension7 message-security-assist-extension8
  message-security-assist-extension9 miscellaneous-extensions miscellaneous-extensions-2
  miscellaneous-extensions-3 population-count processor-assist reset-reference-bits-multiple
  test-pending-external-interruption transactional-execution vector vector-enhancements-1
  vector-enhancements-2 vector-packed-decimal vector-packed-decimal-enhancement
cpu arch14 z16: bear-enhancement deflate-conversion dfp-packed-conversion dfp-zoned-conversion
  distinct-ops enhanced-dat-2 enhanced-sort execution-hint fp-extension guarded-storage high-word
  insert-reference-bits-multiple interlocked-access1 load-and-trap load-and-zero-rightmost-byte
  load-store-on-cond load-store-on-cond-2 message-security-assist-extension3
  message-security-assist-extension4 message-security-assist-extension5
  message-security-assist-extension7 message-security-assist-extension8
  message-security-assist-extension9 miscellaneous-extensions miscellaneous-extensions-2
  miscellaneous-extensions-3 nnp-assist population-count processor-activity-instrumentation
  processor-assist reset-dat-protection reset-reference-bits-multiple
  test-pending-external-interruption transactional-execution vector vector-enhancements-1
  vector-enhancements-2 vector-packed-decimal vector-packed-decimal-enhancement
  vector-packed-decimal-enhancement-2
cpu arch15 z17: bear-enhancement concurrent-functions deflate-conversion dfp-packed-conversion
  dfp-zoned-conversion distinct-ops enhanced-dat-2 enhanced-sort execution-hint fp-extension
  guarded-storage high-word insert-reference-bits-multiple interlocked-access1 load-and-trap
  load-and-zero-rightmost-byte load-store-on-cond load-store-on-cond-2
  message-security-assist-extension12 message-security-assist-extension3
  message-security-assist-extension4 message-security-assist-extension5
  message-security-assist-extension7 message-security-assist-extension8
  message-security-assist-extension9 miscellaneous-extensions miscellaneous-extensions-2
  miscellaneous-extensions-3 miscellaneous-extensions-4 nnp-assist population-count
  processor-activity-instrumentation processor-assist reset-dat-protection
  reset-reference-bits-multiple test-pending-external-interruption transactional-execution vector
  vector-enhancements-1 vector-enhancements-2 vector-enhancements-3 vector-packed-decimal
  vector-packed-decimal-enhancement vector-packed-decimal-enhancement-2
  vector-packed-decimal-enhancement-3
cpu arch8 generic z10:
cpu arch9 z196: distinct-ops fp-extension high-word interlocked-access1 load-store-on-cond
  message-security-assist-extension3 message-security-assist-extension4 population-count
  reset-reference-bits-multiple
features: backchain bear-enhancement concurrent-functions deflate-conversion dfp-packed-conversion
  dfp-zoned-conversion distinct-ops enhanced-dat-2 enhanced-sort execution-hint fast-serialization
  fp-extension guarded-storage high-word insert-reference-bits-multiple interlocked-access1
  load-and-trap load-and-zero-rightmost-byte load-store-on-cond load-store-on-cond-2
  message-security-assist-extension12 message-security-assist-extension3
  message-security-assist-extension4 message-security-assist-extension5
  message-security-assist-extension7 message-security-assist-extension8
  message-security-assist-extension9 miscellaneous-extensions miscellaneous-extensions-2
  miscellaneous-extensions-3 miscellaneous-extensions-4 nnp-assist population-count
  processor-activity-instrumentation processor-assist reset-dat-protection
  reset-reference-bits-multiple soft-float test-pending-external-interruption
  transactional-execution unaligned-symbols vector vector-enhancements-1 vector-enhancements-2
  vector-enhancements-3 vector-packed-decimal vector-packed-decimal-enhancement
  vector-packed-decimal-enhancement-2 vector-packed-decimal-enhancement-3
"""
