"""What FleetGP answers, kept to the last bit, to compare before and after a change of its code."""
