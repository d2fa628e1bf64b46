"""NumPy's types for element types; ml_dtypes adds those that NumPy lacks."""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's type for an element type."""
    extra = getattr(ml_dtypes, str(dtype), None)
    return np.dtype(extra if extra is not None else str(dtype))
