"""An agent looks at its own certificate: nobody else tells it that the time is over."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent import service
from fleetgp.agent.certificates import Credentials, days_left, make_authority, make_certificate
from fleetgp.agent.logs import Log
from fleetgp.agent.service import look_at_certificates
from fleetgp.errors import FleetGPError, InputError


def looked(folder: Path, own: Credentials) -> list[dict[str, Any]]:
    log = Log("a0", file=folder / "a0.log")
    look_at_certificates(own, log)
    log.close()
    return [json.loads(line) for line in (folder / "a0.log").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("days", "said"), [(365, []), (31, []), (29, ["soon"]), (1, ["soon"]), (-3, ["expired"])])
def test_a_certificate_that_ends_is_told(tmp_path: Path, days: int, said: list[str]) -> None:
    own = make_certificate(tmp_path / "keys", "a0", days=days)
    assert days_left(own.certificate) == pytest.approx(days, abs=0.1)
    lines = looked(tmp_path, own)
    assert [line["event"].split()[-1] for line in lines] == said
    for line in lines:
        assert line["file"].endswith("a0.crt")
        assert "fleetgp certs" in line["remedy"]
        assert line["level"] == ("error" if days < 0 else "warning")


def test_an_authority_that_ends_is_told_too(tmp_path: Path) -> None:
    make_authority(tmp_path / "keys", days=10)
    (line,) = looked(tmp_path, make_certificate(tmp_path / "keys", "a0"))
    assert line["file"].endswith("authority.crt")


def test_what_is_no_certificate_is_one_error(tmp_path: Path) -> None:
    own = make_certificate(tmp_path / "keys", "a0")
    own.certificate.write_text("nonsense", encoding="utf-8")
    with pytest.raises(InputError, match=r"a0\.crt: expected a certificate, got something else"):
        look_at_certificates(own, Log("a0", file=tmp_path / "a0.log"))


def test_an_agent_looks_again_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = make_certificate(tmp_path / "keys", "a0", days=3)
    monkeypatch.setattr(service, "DAY", 0.01)
    log = Log("a0", file=tmp_path / "a0.log")
    ended, looks = threading.Event(), threading.Semaphore(0)
    real = service.look_at_certificates

    def look(*arguments: Any) -> None:
        real(*arguments)
        looks.release()

    monkeypatch.setattr(service, "look_at_certificates", look)
    thread = threading.Thread(target=service._look_again, args=(own, log, ended))
    thread.start()
    assert all(looks.acquire(timeout=30.0) for _ in range(2))
    own.certificate.unlink()  # while it is replaced
    deadline = time.monotonic() + 30.0
    while "cannot be read" not in (tmp_path / "a0.log").read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
    ended.set()
    thread.join(30.0)
    assert not thread.is_alive()
    log.close()
    assert "certificate expires soon" in (tmp_path / "a0.log").read_text(encoding="utf-8")


def test_an_agent_ends_when_its_certificate_expires(tmp_path: Path) -> None:
    """Not before: one that has expired comes back only with another certificate, whatever Zenoh lets in."""
    own = make_certificate(tmp_path / "keys", "a0", days=2.0 / 86_400.0)
    log = Log("a0", file=tmp_path / "a0.log")
    with pytest.raises(FleetGPError, match="has expired: if the clock of this machine is wrong"):
        service._look_again(own, log, threading.Event())
    log.close()
    assert days_left(own.certificate) <= 0.0
    assert "certificate expired" in (tmp_path / "a0.log").read_text(encoding="utf-8")


def test_a_clock_that_is_behind_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = make_certificate(tmp_path / "keys", "a0")
    monkeypatch.setattr(service, "days_ahead", lambda _: 400.0)
    lines = looked(tmp_path, own)
    assert [line["event"] for line in lines] == ["certificate is not valid yet"] * 2
    assert all("clock" in line["remedy"] for line in lines)


@pytest.mark.parametrize("host", ["", "ü ü", "..", "::::", "a" * 300, "a/b"])
def test_a_host_that_nobody_can_look_up_is_one_error_and_leaves_nothing(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match=r"expected a host like 10\.0\.0\.3 or boat\.example"):
        make_certificate(tmp_path / "keys", "a0", hosts=["10.0.0.3", host])
    assert not (tmp_path / "keys").exists()


def test_certificates_go_where_files_can_be_put(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        make_certificate(tmp_path / "keys", "a0")
    with pytest.raises(InputError, match="cannot be written"):
        make_certificate("/proc/fleetgp-keys", "a0")
