"""The names of processors and features that LLVM knows, one file per architecture."""
