"""A server on this machine that speaks ERDDAP's griddap protocol, and has trouble on demand."""

from __future__ import annotations

import re
import urllib.parse
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import xarray as xr
from scipy.io import netcdf_file


def temperature(latitude: Any, longitude: Any) -> Any:
    """What the sea of this server is like, in degrees Celsius; no value west of 72.99 W."""
    values = 10.0 + np.sin(3 * np.asarray(latitude))[:, None] + np.cos(2 * np.asarray(longitude))[None, :]
    values[:, np.asarray(longitude) < -72.985] = np.nan
    return values


class Griddap(BaseHTTPRequestHandler):
    """[(time)][(south):stride:(north)][(west):stride:(east)] as a NetCDF file without a length, as ERDDAP does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        if server.trouble:
            getattr(self, server.trouble.pop(0))()
            return
        self.chunked(self.answer())

    def axes(self) -> list[Any]:
        self.answer()
        return self.found

    def answer(self) -> bytes:
        query = urllib.parse.unquote(urllib.parse.urlsplit(self.path).query)
        number = r"\((-?[\d.]+)\)"
        found = re.fullmatch(
            rf"analysed_sst\[\(([\dT:Z-]+)\)\]\[{number}:(\d+):{number}\]\[{number}:(\d+):{number}\]", query
        )
        assert found is not None, query
        day, south, stride, north, west, _, east = found.groups()
        axes = [
            np.round(np.arange(round(float(a) * 100), round(float(b) * 100) + 1, int(stride)) / 100, 2)
            for a, b in ((south, north), (west, east))
        ]
        self.found = axes
        field = xr.Dataset(
            {"analysed_sst": (("time", "latitude", "longitude"), temperature(*axes)[None], {"units": "degree_C"})},
            coords={"time": [np.datetime64(day[:-1], "ns")], "latitude": axes[0], "longitude": axes[1]},
            attrs={"title": "Multi-scale Ultra-high Resolution (MUR) SST Analysis fv04.1"},
        )
        server: Any = self.server
        target = server.folder / f"{len(server.asked)}.nc"
        field.to_netcdf(target, encoding={"analysed_sst": {"_FillValue": -7.768}})
        data: bytes = target.read_bytes()
        return data

    def chunked(self, body: bytes, whole: bool = True) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), 4096):
            part = body[start : start + 4096]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    # ---- troubles --------------------------------------------------------------------------------------

    def breaks_off(self) -> None:
        body = self.answer()
        self.chunked(body[: len(body) // 2], whole=False)

    def falls_short(self) -> None:
        body = self.answer()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:-100])
        self.close_connection = True

    def other_place(self) -> None:
        self.path = self.path.replace("36.", "37.")
        self.chunked(self.answer())

    def cut_short(self) -> None:
        """A classic file, axes first, that ends early, and nothing in the protocol that would tell."""
        axes = self.axes()
        path = self.server.folder / "classic.nc"  # type: ignore[attr-defined]
        with netcdf_file(path, "w") as file:
            for name, values in zip(("latitude", "longitude"), axes, strict=True):
                file.createDimension(name, len(values))
                file.createVariable(name, "f8", (name,))[:] = values
            file.createDimension("time", 1)
            moment = file.createVariable("time", "f8", ("time",))
            moment[:] = 18630.375
            moment.units = "days since 1970-01-01"
            field = file.createVariable("analysed_sst", "f8", ("time", "latitude", "longitude"))
            field[:] = temperature(*axes)[None]
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(path.read_bytes()[: -8 * len(axes[1]) * 5])
        self.close_connection = True

    def other_day(self) -> None:
        self.path = self.path.replace("2021-01-03", "2021-01-02")
        self.chunked(self.answer())

    def no_netcdf(self) -> None:
        self.chunked(b"<html>maintenance</html>")

    def busy(self) -> None:
        self.error(503, "Service Unavailable: busy")

    def refuses(self) -> None:
        self.error(404, 'Not Found: Your query produced no matching results. (time=\\"2031\\")')

    def error(self, code: int, message: str) -> None:
        body = f'Error {{\n    code={code};\n    message="{message}";\n}}\n'.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
