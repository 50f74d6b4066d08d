"""A fleet's own authority, and one certificate per agent whose common name is the agent's. Needs the extra "fleet"."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgp.errors import InputError, shortened
from fleetgp.files import check_folder

AUTHORITY = "authority"
#: An agent's name is that of its folder and of its certificate: none that leads elsewhere, or hides.
NAME = r"^\w(?:[\w .-]*[\w.-])?$"
NAMED = "letters, digits, dots, dashes, underscores and inner spaces, with a letter, digit or underscore first"


@dataclass(frozen=True)
class Credentials:
    """The files that an agent needs to be believed, and to know whom to believe."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: str | Path, agent: str) -> Credentials:
        """Those that `make_authority` and `make_certificate` put into a folder; one error if some are missing."""
        root = Path(folder)
        return cls(root / f"{AUTHORITY}.crt", root / f"{agent}.crt", root / f"{agent}.key").checked()

    def checked(self) -> Credentials:
        """These, or one error if a file is missing."""
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                raise InputError(f"{path}: there is no such file; `fleetgp certs` makes it")
        return self


def check_name(agent: str) -> None:
    """One clear error for what cannot be an agent's name."""
    if re.fullmatch(NAME, agent) is None or len(agent.encode()) > 64 or agent == AUTHORITY:
        raise InputError(
            f"an agent cannot be called {shortened(agent)}: expected {NAMED}, at most 64 bytes, and not {AUTHORITY!r}"
        )


def is_host(host: str) -> bool:
    """An address, or a name that can be looked up.

    >>> [is_host(host) for host in ("10.0.0.3", "::1", "boat-3.example", "..", "a" * 64, "bücher", "")]
    [True, True, True, False, False, False, False]
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= 200 and re.fullmatch(r"[\w-]{1,63}(\.[\w-]{1,63})*", host, re.ASCII) is not None
    return True


def make_authority(folder: str | Path, *, days: int = 3650) -> Path:
    """A key and a self-signed certificate for the fleet; what is there already is kept."""
    root = Path(folder)
    check_folder(root)
    root.mkdir(parents=True, exist_ok=True)
    certificate, key = root / f"{AUTHORITY}.crt", root / f"{AUTHORITY}.key"
    if certificate.is_file() and key.is_file():
        return certificate
    if certificate.is_file():
        raise InputError(
            f"{key}: the authority's key is not here, and without it nothing can be signed: run this where it is kept"
        )
    x509 = _x509()
    private = _new_key()
    name = _name("FleetGP fleet authority")
    built = (
        _builder(name, name, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(private, _hash())
    )
    _write_key(key, private)
    certificate.write_bytes(_pem(built))
    return certificate


def make_certificate(
    folder: str | Path, agent: str, *, hosts: Iterable[str] = ("127.0.0.1", "localhost"), days: float = 365
) -> Credentials:
    """A key and a certificate for one agent, signed by the folder's authority. hosts: where it can be reached."""
    check_name(agent)
    places = [_host(host) for host in dict.fromkeys(hosts)]
    root = Path(folder)
    make_authority(root)
    x509 = _x509()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    authority = x509.load_pem_x509_certificate((root / f"{AUTHORITY}.crt").read_bytes())
    signing: Any = load_pem_private_key((root / f"{AUTHORITY}.key").read_bytes(), None)
    private = _new_key()
    built = (
        _builder(_name(agent), authority.subject, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(_both_sides(), critical=False)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .sign(signing, _hash())
    )
    _write_key(root / f"{agent}.key", private)
    (root / f"{agent}.crt").write_bytes(_pem(built))
    return Credentials.of(root, agent)


def days_left(certificate: Path) -> float:
    """Until it expires; negative if it has."""
    left: datetime.timedelta = _read(certificate).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left / datetime.timedelta(days=1)


def days_ahead(certificate: Path) -> float:
    """Until it becomes valid; negative if it has."""
    ahead: datetime.timedelta = _read(certificate).not_valid_before_utc - datetime.datetime.now(datetime.UTC)
    return ahead / datetime.timedelta(days=1)


def _read(certificate: Path) -> Any:
    try:
        return _x509().load_pem_x509_certificate(certificate.read_bytes())
    except ValueError as error:
        raise InputError(f"{certificate}: expected a certificate, got something else: {error}") from error


# ---- the library ---------------------------------------------------------------------------------------


def _x509() -> Any:
    try:
        from cryptography import x509
    except ImportError as error:
        raise InputError('certificates need cryptography: pip install "fleetgp[fleet]"') from error
    return x509


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _hash() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _name(common: str) -> Any:
    from cryptography.x509.oid import NameOID

    return _x509().Name([_x509().NameAttribute(NameOID.COMMON_NAME, common)])


def _both_sides() -> Any:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return _x509().ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def _builder(subject: Any, issuer: Any, public: Any, days: float) -> Any:
    x509 = _x509()
    now = datetime.datetime.now(datetime.UTC)
    # A day back for clocks that differ; a negative number of days makes one that has expired, for tests.
    begins = now - datetime.timedelta(days=1 + max(0, -2 * days))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> Any:
    return _x509().KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> Any:
    x509 = _x509()
    if not is_host(host):
        raise InputError(
            f"expected a host like 10.0.0.3 or boat.example, got {shortened(host)}: names in other letters than a-z "
            "go by their xn-- form"
        )
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = certificate.public_bytes(Encoding.PEM)
    return data


def _write_key(path: Path, private: Any) -> None:
    """Readable by its owner alone, from the first byte on."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    data: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
