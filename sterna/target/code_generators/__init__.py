"""One file per code generator; a kind of target names the one that it needs."""
