"""Advice before a fleet is built, and a second look at one that is: what it would cost, what to use, what holds."""
