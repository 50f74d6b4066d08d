"""The moments engine: after one pass over the data nothing costs anything that grows with N."""
