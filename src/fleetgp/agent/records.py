"""One codec for what agents send each other and keep: records as JSON, every field checked where it comes in.

The types of a record's fields say what may stand in them: `Whole`, `LogTheta`, a `Literal`, another record. Numbers are
exact: a float is written with as many digits as it takes to read the same float again. NaN and infinity are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json, to_json

from fleetgp.arrays import Array
from fleetgp.errors import shortened
from fleetgp.model.hyperparameters import LOG_RANGE
from fleetgp.network.wire import LARGEST

#: No value is converted to a field's type, and no field is unknown.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

T = TypeVar("T")


def one_of(names: Sequence[str]) -> AfterValidator:
    """For a field that holds one of these names."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"expected one of {', '.join(names)}, got {shortened(name)}")
        return name

    return AfterValidator(check)


def _increasing(ids: tuple[int, ...]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(ids)):
        raise ValueError("expected different ids in increasing order")
    return ids


def _matrix(value: Any) -> Array:
    rows = _ROWS.validate_python(value)
    if len({len(row) for row in rows}) > 1:
        raise ValueError("expected rows of one length")
    return np.array(rows, dtype=float) if rows else np.zeros((0, 0))


#: A whole number of at most 63 bits, and one that a float holds exactly.
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
# What a peer sends may be wrong in every place: lists fail at the first (FailFast), or an error takes longer than work.
#: Agents of a fleet, each once.
Ids = Annotated[tuple[Whole, ...], FailFast(), AfterValidator(_increasing)]
IdSet = Annotated[frozenset[Whole], FailFast(), PlainSerializer(sorted)]
#: An observation, or a statistic of observations.
Value = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
#: Hyperparameters, in logarithms.
LogTheta = Annotated[tuple[Annotated[float, Field(ge=-LOG_RANGE, le=LOG_RANGE)], ...], FailFast()]
#: (N, C) numbers; (0, 0) if there are none.
Matrix = Annotated[Array, PlainValidator(_matrix), PlainSerializer(lambda rows: rows.tolist())]

_ROWS = TypeAdapter(Annotated[list[Annotated[list[Value], FailFast()]], FailFast()], config=STRICT)


class Strict:
    """Base of dataclasses that are records."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


class Codec(Generic[T]):
    """Records of one kind, of at most so many bytes.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Estimate(Strict):
    ...     agent: Whole
    ...     log_theta: LogTheta = ()
    >>> codec = Codec(Estimate, 100)
    >>> codec.encode(Estimate(7, (0.1,)))
    b'{"agent":7,"log_theta":[0.1]}'
    >>> codec.decode(b'{"agent":7,"log_theta":[0.1]}')
    Estimate(agent=7, log_theta=(0.1,))
    >>> codec.decode(b'{"agent":7,"log_theta":[true]}')
    Traceback (most recent call last):
    ValueError: log_theta.0: Input should be a valid number
    """

    def __init__(self, kind: type[T], most_bytes: int) -> None:
        self._adapter, self.most_bytes = TypeAdapter(kind), most_bytes

    def encode(self, record: T) -> bytes:
        return self._adapter.dump_json(record, by_alias=True)

    def decode(self, data: bytes) -> T:
        """A record, or a ValueError that says what is wrong with it; nothing else can come out.

        All fields must be there, since what comes out is compared with what came in.
        """
        if len(data) > self.most_bytes:
            raise ValueError(f"expected at most {self.most_bytes} bytes, got {len(data)}")
        try:
            record = self._adapter.validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error
        if self._adapter.dump_python(record, mode="json", by_alias=True) != from_json(data):
            raise ValueError("expected a record with all its fields, and each value once")
        return record

    def facts_of(self, record: T) -> Any:
        """A record as plain values: for a file that names some of them otherwise."""
        return from_json(self.encode(record))

    def of_facts(self, facts: Any) -> T:
        """The converse of `facts_of`; or a ValueError."""
        return self.decode(to_json(facts, inf_nan_mode="constants"))
