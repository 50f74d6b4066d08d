"""A fleet's own authority, and one certificate per agent whose common name is the agent's. Needs the extra "fleet"."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
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
    c = _cryptography()
    private = c.ec.generate_private_key(c.ec.SECP256R1())
    name = _common_name(c, "FleetGP fleet authority")
    built = _signed(c, name, private.public_key(), name, private, days)
    _write_key(c, key, private)
    certificate.write_bytes(built.public_bytes(c.serialization.Encoding.PEM))
    return certificate


def make_certificate(
    folder: str | Path, agent: str, *, hosts: Iterable[str] = ("127.0.0.1", "localhost"), days: float = 365
) -> Credentials:
    """A key and a certificate for one agent, signed by the folder's authority. hosts: where it can be reached."""
    check_name(agent)
    c = _cryptography()
    places = [_host(c, host) for host in dict.fromkeys(hosts)]
    root = Path(folder)
    make_authority(root)
    authority = c.x509.load_pem_x509_certificate((root / f"{AUTHORITY}.crt").read_bytes())
    signing: Any = c.serialization.load_pem_private_key((root / f"{AUTHORITY}.key").read_bytes(), None)
    private = c.ec.generate_private_key(c.ec.SECP256R1())
    built = _signed(c, _common_name(c, agent), private.public_key(), authority.subject, signing, days, places)
    _write_key(c, root / f"{agent}.key", private)
    (root / f"{agent}.crt").write_bytes(built.public_bytes(c.serialization.Encoding.PEM))
    return Credentials.of(root, agent)


def days_left(certificate: Path) -> float:
    """Until it expires; negative if it has."""
    left: datetime.timedelta = _read(certificate).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left / datetime.timedelta(days=1)


def days_ahead(certificate: Path) -> float:
    """Until it becomes valid; negative if it has."""
    ahead: datetime.timedelta = _read(certificate).not_valid_before_utc - datetime.datetime.now(datetime.UTC)
    return ahead / datetime.timedelta(days=1)


def signature_of(text: bytes, key: Path) -> bytes:
    """Sign bytes with a private key: ECDSA over SHA-256."""
    c = _cryptography()
    private: Any = c.serialization.load_pem_private_key(key.read_bytes(), None)
    signature: bytes = private.sign(text, c.ec.ECDSA(c.hashes.SHA256()))
    return signature


def signing_error(
    text: bytes, signature: bytes, certificate: bytes, authority: Path, name: str, at: datetime.datetime | None
) -> str:
    """Return why bytes do not count as signed in someone's name, or "" if they do.

    certificate: the signer's, PEM.  at: when it must be valid; None: whenever.
    """
    c = _cryptography()
    try:
        shown = c.x509.load_pem_x509_certificate(certificate)
        shown.verify_directly_issued_by(_read(authority))
        common = [attribute.value for attribute in shown.subject.get_attributes_for_oid(c.x509.NameOID.COMMON_NAME)]
        if common != [name]:
            return f"it is signed by {shortened(', '.join(common))}, not by the {name}"
        if at is not None and not shown.not_valid_before_utc <= at <= shown.not_valid_after_utc:
            begin, end = shown.not_valid_before_utc, shown.not_valid_after_utc
            return f"the {name}'s certificate is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC only"
        shown.public_key().verify(signature, text, c.ec.ECDSA(c.hashes.SHA256()))
    except c.exceptions.InvalidSignature:
        return "its signature, or that of the certificate, is wrong: it was changed, or is of another authority"
    except (ValueError, TypeError, AttributeError) as error:
        return f"its certificate is none of this fleet's authority: {error}"
    return ""


def _read(certificate: Path) -> Any:
    try:
        return _cryptography().x509.load_pem_x509_certificate(certificate.read_bytes())
    except ValueError as error:
        raise InputError(f"{certificate}: expected a certificate, got something else: {error}") from error


def _cryptography() -> Any:
    """The library's modules, imported when they are needed."""
    try:
        from cryptography import exceptions, x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise InputError('certificates need cryptography: pip install "fleetgp[fleet]"') from error
    return SimpleNamespace(x509=x509, hashes=hashes, serialization=serialization, ec=ec, exceptions=exceptions)


def _common_name(c: Any, name: str) -> Any:
    return c.x509.Name([c.x509.NameAttribute(c.x509.NameOID.COMMON_NAME, name)])


def _signed(
    c: Any, name: Any, public: Any, issuer: Any, signing: Any, days: float, places: list[Any] | None = None
) -> Any:
    """A certificate of the authority itself, or of an agent that can be reached at these places."""
    now, is_authority = datetime.datetime.now(datetime.UTC), places is None
    # A day back for clocks that differ; a negative number of days makes one that has expired, for tests.
    begins = now - datetime.timedelta(days=1 + max(0, -2 * days))
    others = ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    usage = c.x509.KeyUsage(
        digital_signature=True,
        key_encipherment=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        **dict.fromkeys(others, False),
    )
    builder = (
        c.x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(c.x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(c.x509.BasicConstraints(is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )
    if places is not None:
        purposes = c.x509.ExtendedKeyUsageOID
        both_sides = c.x509.ExtendedKeyUsage([purposes.SERVER_AUTH, purposes.CLIENT_AUTH])
        builder = builder.add_extension(both_sides, critical=False)
        builder = builder.add_extension(c.x509.SubjectAlternativeName(places), critical=False)
    return builder.sign(signing, c.hashes.SHA256())


def _host(c: Any, host: str) -> Any:
    if not is_host(host):
        raise InputError(
            f"expected a host like 10.0.0.3 or boat.example, got {shortened(host)}: names in other letters than a-z "
            "go by their xn-- form"
        )
    try:
        return c.x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return c.x509.DNSName(host)


def _write_key(c: Any, path: Path, private: Any) -> None:
    """Readable by its owner alone, from the first byte on."""
    forms = c.serialization
    data: bytes = private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
