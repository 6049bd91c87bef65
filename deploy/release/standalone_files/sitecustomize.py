"""Find this machine's certificate authorities: Debian's OpenSSL looks only in Debian's place."""

import os

_PLACES = (
    "/etc/pki/tls/cert.pem",  # RHEL
    "/etc/ssl/certs/ca-certificates.crt",  # Debian
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",
)


def _bundle() -> str:
    """The machine's, else Mozilla's, as packed here."""
    packed = os.path.join(
        os.path.dirname(__file__), "../../local/lib/python3.11/dist-packages/certifi/cacert.pem"
    )
    return next(filter(os.path.isfile, (*_PLACES, os.path.normpath(packed))), "")


if "SSL_CERT_FILE" not in os.environ and "SSL_CERT_DIR" not in os.environ:
    os.environ["SSL_CERT_FILE"] = _bundle()
