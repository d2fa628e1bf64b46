"""Fuzzers: generators of broken and of random input, and what drives them."""
