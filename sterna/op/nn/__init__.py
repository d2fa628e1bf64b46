"""Operators of neural networks: convolutions, products, pools, norms, activations."""
