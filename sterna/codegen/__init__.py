"""Code generators: loop IR to machine code and to source."""
