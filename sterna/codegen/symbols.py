"""What code and its loaders agree on: symbols, and how parallel loops are cut."""

PACKED_PREFIX = "__tvm_ffi_"
LIBRARY_CONTEXT = "__tvm_ffi__library_ctx"
"""The variable that a loader points to the module that the code belongs to."""
LIBRARY_TABLE = "__tvm_ffi__library_bin"
"""The symbol of the bytes that say which modules a file holds; see runtime/src/blob.c."""
MODEL_SYMBOL = "__sterna__model"
"""The symbol of the name of a file's model; with _ and that name behind it, of the model's data."""
HOST = "__sterna__host"
"""The variable that a loader points to what the code may ask of it; see llvm/host.py."""
LEVELS = "__sterna__levels"
"""The symbol of the text that says for which levels of an architecture a file holds code."""
NEEDS = "__sterna__needs"
"""The symbol of the text that says which processor the code needs; see runtime/src/processor.c."""

TASKS_OF_A_THREAD = 8
"""Into how many tasks a parallel loop is cut for each thread; who is done takes some of others."""
