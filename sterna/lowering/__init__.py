"""From graphs to loops: kernels, storage, the executor's graph."""
