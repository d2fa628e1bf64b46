"""How kernels run: from the description of a contraction to loops.

An operator says what is computed; this room says how. A kernel is made in these steps:

1. **Description.** The operator makes one `Contraction` (contraction.py): extents, window, strides,
   groups, types, layouts. Convolutions, dense layers and products of matrices are all such.
2. **Implementation.** The pass ChooseImplementations asks every file in `implementations/` which
   plans suit the contraction on the processor and what they cost, in cycles of the thread that ends
   last, by one cost model (cost.py): direct, split-K, blocked GEMM, Winograd, AMX, byte pairs,
   depthwise dot products, polyphase planes, im2col. The cheapest is taken, and it packs the
   weights; nn.conv2d stays nn.conv2d, with a plan.
3. **Stages.** The first three are tensor expressions (expression.py) whose sum carries its
   description (sum_of_products.py): what its axes run over, how operands are read, and the plan's
   name. They are implicit GEMM: windows are read where they lie, without the copies of im2col.
   Others write statements of their own (`*_kernel.py`, on the base in statement_kernel.py), with
   the epilogue in registers (epilogue.py).
4. **Schedule.** registry.py finds the schedule of the kernel's anchor by the keys of the target;
   direct_conv.py, depthwise_conv.py, gemm.py and packed_rows.py, blocked_gemm.py, conv_chain.py,
   split_k.py, attention.py, default.py (elementwise, reductions; moved_elements.py, reads.py,
   loops.py, axes_in_order.py and row_stages.py beside it), rows_in_cache.py (softmax,
   norms) and pool_windows.py place loops around a micro-kernel: register tiles, bands that stay
   in a cache, shares for threads, prefetches.
5. **Choices.** Whatever is decided on the way goes through one door, `choose(name, candidates,
   cost)` (choose.py): the cheapest, unless an answer from outside replaces it. The build report
   lists what was asked, offered and taken.

Adding an implementation is one file in `implementations/`; CONTRIBUTING.md shows one.
"""
