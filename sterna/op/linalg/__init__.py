"""Dense linear algebra on small matrices: factorisations, triangular systems, eigenvalues."""
