"""Structured logs: one JSON document a line, with the time, the agent, the event and what belongs to it."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from pathlib import Path
from typing import Any, TextIO


class Log:
    """log("neighbour down", neighbour="auv2") -> {"time": ..., "level": "info", "agent": ..., "event": ..., ...}."""

    def __init__(self, agent: str, stream: TextIO | None = None, file: Path | None = None) -> None:
        self._agent = agent
        self._logger = logging.Logger(f"fleetgp.agent.{agent}")
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._logger.addHandler(logging.FileHandler(file, encoding="utf-8"))
        if file is None or stream is not None:
            self._logger.addHandler(logging.StreamHandler(stream or sys.stderr))

    def __call__(self, event: str, **fields: Any) -> None:
        self._write("info", logging.INFO, event, fields)

    def warn(self, event: str, **fields: Any) -> None:
        self._write("warning", logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", logging.ERROR, event, fields)

    def _write(self, level: str, number: int, event: str, fields: dict[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "agent": self._agent, "event": event, **fields}
        self._logger.log(number, "%s", json.dumps(line, ensure_ascii=False, default=str))

    def close(self) -> None:
        for handler in list(self._logger.handlers):
            handler.close()
            self._logger.removeHandler(handler)
