"""The licences of the packages that we ship: permissive ones, and EXCEPTIONS with their reasons.

A licence is read from the installed package: License-Expression (PEP 639), else the classifiers and
the License field. What is not known to be permissive is refused, and so is a package that states nothing.
Debian's packages in the images are programs of their own, under Debian's terms.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from deploy.images.errors import BuildError

PERMISSIVE = frozenset({
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
    *("CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Unlicense", "Zlib"),
    # As classifiers and older License fields say it
    *("Academic Free License (AFL)", "Apache 2.0", "Apache 2.0 License", "Apache License, Version 2.0"),
    *("Apache Software License", "Apache Software License 2.0", "3-Clause BSD License", "Apache", "BSD"),
    *("BSD License", "BSD 3-Clause License", "ISC License", "ISC License (ISCL)", "MIT License"),
    "Python Software Foundation License",
})  # fmt: skip
EXCEPTIONS = {
    "certifi": "MPL-2.0, copyleft for each file: the list of authorities is shipped as published",
    "tqdm": "MPL-2.0 for some of its files, which are shipped as published; stacks bring it to workers",
    "cuda-toolkit": "states none; it has no files but names the nvidia-* packages that torch needs",
    "nvidia-*": "proprietary, no copyleft: NVIDIA's terms let images hold the libraries that torch links to",
}
"""Packages under another licence or none, and why they may be shipped."""


def check(site: Path) -> None:
    """BuildError if a package below a folder must not be shipped."""
    if found := refused(metadata.distributions(path=[str(site)])):
        raise BuildError(f"may not be shipped under their licence: {'; '.join(found)}")


def refused(packages: Iterable[metadata.Distribution]) -> list[str]:
    """NAME: LICENCE of each package that must not be shipped."""
    return sorted(
        f"{package.name}: {' AND '.join(licences) or 'no licence stated'}"
        for package in packages
        if not any(fnmatch(normal(package.name), each) for each in EXCEPTIONS)
        and not (PERMISSIVE.issuperset(licences := stated(package.metadata)) and licences)
    )


def stated(about: metadata.PackageMetadata) -> list[str]:
    """The licences that a package's metadata names; of alternatives (OR) all count."""
    expression = about.get("License-Expression")
    if expression:
        return _parts(expression)
    name, _, more = (about.get("License") or "").strip().partition("\n")  # some give the whole text
    named = [_parts(name)] if name != "UNKNOWN" and (not more or name in PERMISSIVE) else []
    classifiers = [each.split(" :: ") for each in about.get_all("Classifier") or ()]
    named += [[parts[-1]] for parts in classifiers if parts[0] == "License" and len(parts) > 2]
    return sorted({part for parts in named for part in parts})


def _parts(expression: str) -> list[str]:
    return [part for each in re.split(r" (?:AND|OR|and|or) |[()]", expression) if (part := each.strip())]


def normal(name: str) -> str:
    """A package's name as its index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
