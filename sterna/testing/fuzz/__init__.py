"""Fuzzers: random and broken input for every part, by one command.

    python -m sterna.testing.fuzz --minutes 60 [--seed 1] [--only networks] [--corpus FOLDER]

Each file of fuzzers/ is one fuzzer. All that it draws comes from a tape of numbers (tape.py), so
that what was found is a list of numbers, which the minimiser makes shorter and smaller without
knowing what they mean. Cases run in a process of their own, with limits of time and memory.
"""
