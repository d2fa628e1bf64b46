"""How a compiler and a firmware project talk: methods, as lines of JSON."""
