"""LAPACK without the interpreter lock, a robust Cholesky factor, and who uses the cores."""
