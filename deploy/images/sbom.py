"""An image's contents (SPDX 2.3) and its provenance (SLSA, as an in-toto statement)."""

import json
from collections.abc import Mapping, Sequence

from deploy.images.debian import Package


def spdx(
    image: str, digest: str, *, debian: Sequence[Package], python: Sequence[tuple[str, str]], created: str
) -> dict[str, object]:
    """The image's packages."""
    described = [
        _package(p.name, p.version, f"pkg:deb/debian/{p.name}@{p.version}?distro=bookworm", p.sha256)
        for p in debian
    ]
    described += [_package(name, version, f"pkg:pypi/{name.lower()}@{version}") for name, version in python]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image,
        "documentNamespace": f"https://rightsizer.dev/spdx/{digest.removeprefix('sha256:')}",
        "creationInfo": {"created": created, "creators": ["Tool: rightsizer deploy.images.build"]},
        "packages": described,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": package["SPDXID"],
            }
            for package in described
        ],
    }


def _package(name: str, version: str, purl: str, sha256: str = "") -> dict[str, object]:
    identifier = "".join(c if c.isalnum() else "-" for c in purl.removeprefix("pkg:"))
    package: dict[str, object] = {
        "SPDXID": f"SPDXRef-{identifier}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        ],
    }
    if sha256:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256}]
    return package


def provenance(
    image: str, digest: str, *, source: str, revision: str, locks: Mapping[str, str]
) -> dict[str, object]:
    """Unsigned: `cosign attest --predicate` signs its predicate where there is a key."""
    materials = [{"uri": name, "digest": {"sha256": sha256}} for name, sha256 in locks.items()]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": image, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://rightsizer.dev/deploy/images",
                "externalParameters": {"image": image},
                "resolvedDependencies": [
                    {"uri": f"git+{source}", "digest": {"gitCommit": revision}},
                    *materials,
                ],
            },
            "runDetails": {"builder": {"id": "https://rightsizer.dev/deploy.images.build"}},
        },
    }


def text(document: Mapping[str, object]) -> str:
    """The document as a file holds it."""
    return json.dumps(document, indent=1) + "\n"
