"""The extra "fast": compiled loops and transforms are used, with the answers of those without."""

import numpy as np

from fleetgp.engines.dense.likelihood import compiled, squared_distances
from fleetgp.engines.moments.sums import library

fast = compiled()
assert fast is not None
z = np.random.default_rng(1).standard_normal((1, 2, 9))
found, expected = (np.empty((1, 36)) for _ in range(2))
fast.squared_distances(z, found)
squared_distances(z, expected)
np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)

# A sum of two waves, by FINUFFT and by hand.
finufft = library()
assert finufft is not None
t, weights = np.array([0.3, -1.2]), np.array([1 + 0j, 2 - 1j])
transformed = finufft.nufft1d1(t, weights, n_modes=5, eps=1e-12)
by_hand = [(weights * np.exp(1j * k * t)).sum() for k in range(-2, 3)]
np.testing.assert_allclose(transformed, by_hand, rtol=1e-9, atol=1e-9)
