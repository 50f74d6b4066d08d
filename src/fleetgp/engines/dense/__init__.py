"""The dense engine: the exact likelihood and posterior by LAPACK."""
