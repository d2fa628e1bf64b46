"""How kernels run on GPUs: which loops are blocks and threads, and what these share."""
