"""The MUR v4.1 sea-surface temperature grid from a public ERDDAP server. Needs the extra "data".

ERDDAP makes every answer on the fly: it has no length, no checksum and no ranges to resume from. So a request is cut
into bands of latitude. Each band is streamed to disk, checked against the axes that were asked for, and kept with its
SHA-256; a download that was interrupted fetches the missing bands only. The whole is one NetCDF file in the cache.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import http.client
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import FleetGPError, InputError, NetworkError
from fleetgp.io.fields import check_box, xarray
from fleetgp.progress import Listener, Progress, listening
from fleetgp.validation import check_whole

if sys.platform != "win32":
    import fcntl

SERVER = "https://coastwatch.pfeg.noaa.gov/erddap"
DATASET, VARIABLE = "jplMURSST41", "analysed_sst"
#: The grid of the product: 0.01 degrees, from these corners.
STEP, SOUTH, WEST, NORTH, EAST = 0.01, -89.99, -179.99, 89.99, 180.0
FIRST_DAY = datetime.date(2002, 6, 1)
#: Values per band: some 2 MB each, small enough for a server that is asked politely.
BAND = 250_000
ATTEMPTS, CHUNK = 4, 1 << 16
#: What the disk may say, which no other attempt changes.
LOCAL = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Request:
    """A box of the grid on one day, every `stride`-th point: latitudes and longitudes that the answer must have."""

    day: str
    latitudes: Array
    longitudes: Array
    stride: int

    @property
    def name(self) -> str:
        south, north, west, east = (*self.latitudes[[0, -1]], *self.longitudes[[0, -1]])
        return f"mur_v41_{self.day}_{west:.2f}_{south:.2f}_{east:.2f}_{north:.2f}_every{self.stride}.nc"

    def bands(self) -> list[Request]:
        rows = max(1, BAND // len(self.longitudes))
        cuts = range(0, len(self.latitudes), rows)
        return [Request(self.day, self.latitudes[cut : cut + rows], self.longitudes, self.stride) for cut in cuts]

    def address(self, server: str) -> str:
        axes = "".join(
            f"[({axis[0]:.2f}):{self.stride}:({axis[-1]:.2f})]" for axis in (self.latitudes, self.longitudes)
        )
        query = urllib.parse.quote(f"{VARIABLE}[({self.day}T09:00:00Z)]{axes}", safe="():")
        return f"{server.rstrip('/')}/griddap/{DATASET}.nc?{query}"


def download_mur(
    box: Sequence[float],
    date: str,
    *,
    stride: int = 1,
    folder: str | Path | None = None,
    server: str = SERVER,
    timeout: float = 60.0,
    progress: bool | Listener = False,
) -> Path:
    """Fetch a box (west, south, east, north) of one day (YYYY-MM-DD); the path of the NetCDF file, for `load_sst`.

    What is in the cache and undamaged is not fetched again. folder: the cache, `~/.cache/fleetgp` by default
    (`FLEETGP_CACHE` or `XDG_CACHE_HOME` move it). timeout: seconds without a byte after which an attempt has failed.

    >>> download_mur((-73, 36.4, -69.4, 40), "yesterday")
    Traceback (most recent call last):
    fleetgp.errors.InputError: date must be like 2021-01-31, got 'yesterday'
    """
    request = plan(box, date, stride)
    if not server.startswith(("http://", "https://")):
        raise InputError(f"server must be an address like {SERVER}, got {server!r}")
    xarray()  # or one error that says what is missing
    cache = Path(folder) if folder is not None else default_cache()
    target = cache / request.name
    if _sound(target):
        return target
    parts = cache / f"{request.name}.parts"
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{cache}: it cannot be written: {error.strerror}") from error
    bands = request.bands()
    with _alone(cache / f".{request.name}.lock"), listening(progress) as listener:
        if _sound(target):  # another process had it meanwhile
            return target
        parts.mkdir(exist_ok=True)
        for number, band in enumerate(bands):
            part = parts / band.name
            if not _sound(part):
                _fetch(band, part, server, timeout, listener, (number, len(bands)))
            if listener is not None:
                listener(Progress(f"MUR {request.day}", number + 1, len(bands), "", unit="band"))
        _join([parts / band.name for band in bands], target, request)
        shutil.rmtree(parts, ignore_errors=True)
    return target


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time works on a request, where the system has locks; the lock goes with its process."""
    with lock.open("w", encoding="utf-8") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    lock.unlink(missing_ok=True)


def plan(box: Sequence[float], date: str, stride: int) -> Request:
    """The grid points of a request, or one clear error."""
    west, south, east, north = check_box(box)
    check_whole("stride", stride, least=1)
    try:
        day = datetime.date.fromisoformat(date)
    except (TypeError, ValueError) as error:
        raise InputError(f"date must be like 2021-01-31, got {date!r}") from error
    if day < FIRST_DAY:
        raise InputError(f"MUR begins on {FIRST_DAY}, got {date}: ask for a later day")
    latitudes = _axis(south, north, SOUTH, NORTH, stride)
    longitudes = _axis(west, east, WEST, EAST, stride)
    if not (len(latitudes) and len(longitudes)):
        raise InputError(f"no grid point of MUR ({STEP} degrees) lies in the box {list(box)}: make it larger")
    return Request(day.isoformat(), latitudes, longitudes, stride)


def _axis(low: float, high: float, first: float, last: float, stride: int) -> Array:
    hair = 1e-6  # a face of the box that is on the grid belongs to it
    start = int(np.ceil((max(low, first) - first) / STEP - hair))
    end = int(np.floor((min(high, last) - first) / STEP + hair))
    return np.round(first + STEP * np.arange(start, end + 1, stride), 2)


def default_cache() -> Path:
    chosen = os.environ.get("FLEETGP_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetgp"


# ---- one band ------------------------------------------------------------------------------------------


def _fetch(
    band: Request, part: Path, server: str, timeout: float, listener: Listener | None, place: tuple[int, int]
) -> None:
    """Stream one band to disk; several attempts for what may pass, one clear error for what will not."""
    address = band.address(server)
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(2.0 ** (attempt - 1) * min(1.0, timeout / 10.0))
        try:
            _stream(address, band, part, timeout, listener, place)
            return
        except FleetGPError:
            raise
        except urllib.error.HTTPError as error:
            message = _server_message(error)
            if error.code < 500 and error.code not in (408, 429):
                raise InputError(f"{server} refused the request ({error.code}): {message}") from error
            reason = f"it answered {error.code}: {message}"
        except urllib.error.URLError as error:
            reason = str(error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:  # timeouts and broken answers
            if isinstance(error, OSError) and error.errno in LOCAL:
                raise InputError(f"{part.parent}: it cannot be written: {error.strerror}") from error
            reason = str(error) or type(error).__name__
    raise NetworkError(
        f"{server} did not deliver band {place[0] + 1} of {place[1]} in {ATTEMPTS} attempts: {reason}. "
        f"Is there a network, and is this the right server? {place[0]} finished bands are kept; "
        "the same call continues from there"
    )


def _stream(
    address: str, band: Request, part: Path, timeout: float, listener: Listener | None, place: tuple[int, int]
) -> None:
    partial = part.with_suffix(".partial")
    with urllib.request.urlopen(address, timeout=timeout) as answer, partial.open("wb") as file:
        received = 0
        while chunk := answer.read(CHUNK):
            file.write(chunk)
            received += len(chunk)
            if listener is not None:
                listener(Progress(f"MUR {band.day}", place[0], place[1], f"{received / 1e6:.1f} MB", unit="band"))
        promised = answer.headers.get("Content-Length")
    if promised is not None and received != int(promised):
        raise ValueError(f"the answer broke off after {received:,} of {int(promised):,} bytes")
    _check_band(partial, band)
    _record(partial, part)


def _check_band(file: Path, band: Request) -> None:
    try:
        _check_whole(file)
        with xarray().open_dataset(file) as data:
            field = data[VARIABLE]
            field.load()
            result = [np.asarray(field[name], dtype=float) for name in ("latitude", "longitude")]
            days = {str(moment)[:10] for moment in np.atleast_1d(field["time"].values)}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"the answer is not the NetCDF file that was asked for: {error}") from error
    if days != {band.day}:
        raise InputError(f"the server has no field of {band.day}: it answered with {', '.join(sorted(days))}")
    for have, want in zip(result, (band.latitudes, band.longitudes), strict=True):
        if have.shape != want.shape or np.abs(have - want).max() > 0.3 * STEP:
            raise ValueError("the answer has other latitudes or longitudes than were asked for")


def _check_whole(file: Path) -> None:
    """A classic NetCDF file that was cut short opens all the same, and reads zeros where it ends. SciPy notices."""
    from scipy.io import netcdf_file

    with file.open("rb") as stream:
        if stream.read(3) != b"CDF":
            return  # HDF5, which notices by itself
    try:
        with netcdf_file(file, mmap=False):
            pass
    except (TypeError, IndexError) as error:
        raise ValueError(f"it is cut short: {error}") from error


def _server_message(error: urllib.error.HTTPError) -> str:
    """What ERDDAP says: Error { code=404; message="..."; }, or the status line of another server."""
    try:
        body = error.read(4096).decode("utf-8", "replace")
    except OSError:
        body = ""
    result = re.search(r'message="((?:[^"\\]|\\.)*)"', body)
    text = result.group(1) if result else str(error.reason)
    return " ".join(text.replace('\\"', '"').split())


# ---- the whole -----------------------------------------------------------------------------------------


def _join(parts: list[Path], target: Path, request: Request) -> None:
    opened: list[Any] = []
    partial = target.with_suffix(".partial")
    try:
        opened = [xarray().open_dataset(part, decode_cf=False) for part in parts]  # values as the server packed them
        whole = xarray().concat(
            opened, dim="latitude", data_vars="minimal", coords="minimal", compat="override", join="exact"
        )
        whole.to_netcdf(partial)
    finally:
        for data in opened:
            data.close()
    _check_band(partial, request)
    _record(partial, target)


def _record(partial: Path, final: Path) -> None:
    """Give a finished file its name, with its checksum beside it (in the format of sha256sum)."""
    digest = _sha256(partial)
    partial.replace(final)
    _beside(final).write_text(f"{digest}  {final.name}\n", encoding="utf-8")


def _sound(file: Path) -> bool:
    """Whether the file is there, and is the one that was recorded."""
    note = _beside(file)
    return file.is_file() and note.is_file() and note.read_text(encoding="utf-8").split(" ", 1)[0] == _sha256(file)


def _beside(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
