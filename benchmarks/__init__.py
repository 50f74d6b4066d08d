"""FleetGP against what people would use instead, in one run: `make bench`."""
