"""How kernels run."""
