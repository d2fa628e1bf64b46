"""One fuzzer a file, found by listing."""
