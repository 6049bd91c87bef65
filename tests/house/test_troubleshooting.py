"""Each message that docs/troubleshooting.md quotes is one that the code can print."""

import re

import pytest
from tests.checkout import PACKAGES, ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
FOREIGN = {"resolve_ctls_from_dns_srv"}
"""Messages of other programs."""


@pytest.fixture(scope="session")
def code():
    """All modules and plugins, with strings that go on in the next line joined."""
    files = [f for p in PACKAGES for ending in ("py", "lua") for f in sorted((ROOT / p).rglob(f"*.{ending}"))]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(file.read_text() for file in files))


def parts(message):
    """The constant parts of a message."""
    return [part for part in (each.strip(" ") for each in message.split("...")) if part]


def test_the_page_quotes_messages():
    assert len(MESSAGES) > 40
    assert len(MESSAGES) == len(set(MESSAGES))
    assert set(MESSAGES) >= FOREIGN


@pytest.mark.parametrize("message", sorted(set(MESSAGES) - FOREIGN))
def test_a_quoted_message_is_in_the_code(message, code):
    assert max(len(part) for part in parts(message)) >= 8, "too short to be a message"
    assert not [part for part in parts(message) if part not in code]
