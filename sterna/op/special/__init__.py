"""Special functions of mathematics: Bessel's and Airy's, of statistics, orthogonal polynomials."""
