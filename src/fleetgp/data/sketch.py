"""Small pictures of data that pass by, the same whatever parts they come in: a random sample, and what comes twice.

Every row has a number that looks random, and the rows with the least numbers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array, Keys, row_hashes
from fleetgp.data.suspicions import many_copies

#: How many different rows are looked at for copies: their share is then known to some percent.
WATCHED = 4096


@dataclass(frozen=True)
class Sample:
    """Some of an agent's rows, drawn at random without replacement: those with the least keys.

    keys: ascending.  rows: (n, D + 1), the observations last.
    """

    keys: Keys
    rows: Array

    @classmethod
    def of(cls, rows: Array, keys: Keys, most: int) -> Sample:
        if len(keys) > most:
            chosen = np.argpartition(keys, most)[:most]
            rows, keys = rows[chosen], keys[chosen]
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], rows[order])

    def plus(self, other: Sample, most: int) -> Sample:
        return Sample.of(np.concatenate([self.rows, other.rows]), np.concatenate([self.keys, other.keys]), most)


@dataclass(frozen=True)
class Copies:
    """Some of the different rows, by their hashes, and how often each occurs: all that have the least hashes."""

    hashes: Keys
    times: Array

    @classmethod
    def of(cls, rows: Array) -> Copies:
        return cls._least(scrambled(row_hashes(rows)), np.ones(len(rows)))

    @classmethod
    def _least(cls, hashes: Keys, times: Array) -> Copies:
        found, which = np.unique(hashes, return_inverse=True)
        return cls(found[:WATCHED], np.bincount(which, weights=times, minlength=len(found))[:WATCHED].astype(float))

    def plus(self, other: Copies) -> Copies:
        """Of both parts."""
        return Copies._least(np.concatenate([self.hashes, other.hashes]), np.concatenate([self.times, other.times]))

    def estimate(self, rows: int) -> int:
        """About how many of so many rows are copies of others; 0 where these are few.

        >>> once = np.arange(30_000.0).reshape(-1, 2)
        >>> two, one = Copies.of(once[:10_000]).plus(Copies.of(once[:10_000])), Copies.of(once)
        >>> two.estimate(20_000), one.estimate(15_000)
        (10000, 0)
        """
        seen = self.times.sum()
        return many_copies(round(rows * float((seen - len(self.hashes)) / seen)), rows)


def row_keys(name: str, first: int, count: int, seed: int) -> Keys:
    """A number for each row of a file, from the first on, that looks random: from its place and the seed alone."""
    start = np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)
    return scrambled(scrambled(np.arange(first, first + count, dtype=np.uint64) ^ start) + start)


def scrambled(values: Keys) -> Keys:
    """A permutation of all 64-bit numbers that looks random (SplitMix64, Steele et al., 2014)."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)))
