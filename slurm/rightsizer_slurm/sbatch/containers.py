"""Containers of a plan's image on a site: through Pyxis in srun, or through Apptainer in each task. Pure.

Both run workers in the host's network, where the rendezvous is, and see the run's folder, the working
directory and the checkpoints where the host has them.
"""

import enum
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import STOP_SIGNAL


class Runtime(enum.StrEnum):
    """A site's container runtime; the value of all but Pyxis is the command."""

    PYXIS = "pyxis"
    APPTAINER = "apptainer"
    SINGULARITY = "singularity"


@immutable
class Container:
    """An image, what of the host it sees, and the directory where its command starts."""

    runtime: Runtime
    image: str
    mounts: Sequence[str]
    directory: str

    @property
    def stop_signal(self) -> int:
        """The signal that makes the workers save and stop.

        Slurm signals every process of a step. SIGTERM would end Apptainer's FUSE server too, and with it the
        image under the workers; it does not act on SIGURG, which the entrypoint takes for SIGTERM.
        """
        return signal.SIGTERM if self.runtime is Runtime.PYXIS else STOP_SIGNAL

    def srun_options(self) -> tuple[str, ...]:
        """Options of srun; none if each task starts the container."""
        if self.runtime is not Runtime.PYXIS:
            return ()
        mounts = ",".join(f"{path}:{path}" for path in dict.fromkeys(self.mounts))
        return (
            f"--container-image={_pyxis_image(self.image)}",
            f"--container-mounts={mounts}",
            f"--container-workdir={self.directory}",
        )

    def prefix(self, gpu: Gpu) -> tuple[str, ...]:
        """The prefix of a task's command; empty if srun starts the container.

        The user's own Python packages are left out: Apptainer shows the home directory to every image.
        """
        if self.runtime is Runtime.PYXIS:
            return ()
        drivers = ("--nv",) if gpu.compute_capability else ("--rocm",) if _is_amd(gpu) else ()
        binds = (f"--bind={path}:{path}" for path in dict.fromkeys(self.mounts))
        return (
            *(self.runtime, "exec", *drivers, *binds, f"--pwd={self.directory}"),
            *("--env=PYTHONNOUSERSITE=1", _apptainer_image(self.image)),
        )


def runtime_of(image: str, srun_help: str, has: Callable[[str], object]) -> Runtime:
    """The runtime of a site by its srun's help and the commands that it `has`. InputError: there is none."""
    if "--container-image" in srun_help:
        return Runtime.PYXIS
    for runtime in (Runtime.APPTAINER, Runtime.SINGULARITY):
        if has(runtime):
            return runtime
    remedy = (
        "needs Pyxis (an srun with --container-image) or Apptainer; this site has neither: remove the image"
    )
    raise InputError("spec.launch.image", value=image, remedy=remedy)


def checked_image(image: str, directory: Path) -> str:
    """The image. InputError: it is a file, relative to where the job starts, that is not there."""
    if _is_file(image) and not (directory / image).exists():
        remedy = f"no such file (seen from {directory}): give a path that every node sees, or an address"
        raise InputError("spec.launch.image", value=image, remedy=remedy)
    return image


def checked_mount(path: str) -> str:
    """A folder to mount. InputError: its name has a character that separates mounts."""
    if re.search("[:,]", path):
        raise InputError(
            "mount", value=path, remedy="has a colon or a comma, which separate mounts of a container"
        )
    return path


def _is_file(image: str) -> bool:
    return image.startswith((".", "/")) or (image.endswith(".sif") and "://" not in image)


def _is_amd(gpu: Gpu) -> bool:
    return gpu.architecture.startswith("cdna")


def _pyxis_image(image: str) -> str:
    """An image in Pyxis' syntax: # separates the registry, not a slash. A path stays as it is."""
    head, slash, rest = image.partition("/")
    if image.startswith((".", "/")) or "#" in image or "://" in image or not slash:
        return image
    return f"{head}#{rest}" if "." in head or ":" in head or head == "localhost" else image


def _apptainer_image(image: str) -> str:
    """An image in Apptainer's syntax: a file, or an address with its scheme."""
    return image if _is_file(image) or re.match(r"[a-z-]+://", image) else f"docker://{image}"
