"""The array types used in annotations.

Shapes are written with fixed letters: M agents, A agents hosted here, N points, D input dimensions,
P = D + 2 hyperparameters, T queries, E edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
