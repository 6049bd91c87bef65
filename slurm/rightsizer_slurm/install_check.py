"""`rightsizer slurm install --check`: what is missing on this site, and the lines to add. Changes no file."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_launch.findings import Finding, FindingStatus
from rightsizer_slurm.cluster import config as sites
from rightsizer_slurm.cluster import snapshot
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import fits, pyslurm_version
from rightsizer_slurm.cluster.pools import NOT_FOR_TRAINING, UNTYPED, engine_name
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.submit.protocol import END, VERSION, request_text

_OLDEST = (22, 5)
_COMMENT = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"
_TIMEOUT_S = 10.0
_LUA_FOLDERS = ("/usr/share/lua", "/usr/local/share/lua")
_LUA_VERSIONS = ("5.1", "5.2", "5.3", "5.4")
_LUA = ("job_submit.lua", "rightsizer.lua")


@immutable
class SiteFinding:
    """The result of one check; `lines` are to be added to `file`."""

    status: FindingStatus
    text: str
    file: str = ""
    lines: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The finding with its lines below it."""
        lines = "".join(f"\n    {self.file}: {line}" for line in self.lines)
        return f"{self.status:8}{self.text}{lines}"


def check(
    slurm: Slurm | None = None,
    *,
    exists: Callable[[Path], bool] = Path.exists,
    read_site: Callable[[Path], sites.SiteConfig] = sites.read,
    exchange: Callable[[Path], str] | None = None,
) -> tuple[SiteFinding, ...]:
    """All checks, the required ones first. If Slurm does not answer, that is the only finding."""
    slurm = slurm or Slurm()
    try:
        version = SlurmCommands(slurm).version()
        config = settings(slurm)
        cluster = snapshot.read(slurm)
    except SlurmError as error:
        return (SiteFinding(status=FindingStatus.MISSING, text=f"Slurm: {error}"),)
    return (
        _version(version),
        _json(slurm),
        *_gpus(cluster, _names(config, read_site)),
        *_plugin(config, exists),
        *_daemon(config, read_site, exchange or exchanged),
        *_settings(config),
        _pyslurm(version, pyslurm_version()),
    )


def findings() -> Iterator[Finding]:
    """The checks as `rightsizer doctor` prints them: a line each."""
    for found in check():
        remedy = f"add to {found.file}: {' | '.join(found.lines)}" if found.lines else ""
        text = found.text.removeprefix("Slurm: ")
        yield Finding(status=found.status, subject="Slurm", text=text, remedy=remedy)


def _ok(text: str) -> SiteFinding:
    return SiteFinding(status=FindingStatus.OK, text=text)


def _note(text: str, *lines: str) -> SiteFinding:
    return SiteFinding(status=FindingStatus.NOTE, text=text, file="slurm.conf", lines=lines)


def _missing(text: str, file: str = "", *lines: str) -> SiteFinding:
    return SiteFinding(status=FindingStatus.MISSING, text=text, file=file, lines=lines)


def _version(version: tuple[int, int]) -> SiteFinding:
    name = f"Slurm {version[0]}.{version[1]:02}"
    if version < _OLDEST:
        return _missing(f"{name} is older than 22.05, the oldest release that rightsizer is tested with")
    return _ok(name)


def _json(slurm: Slurm) -> SiteFinding:
    try:
        jobs = SlurmCommands(slurm).jobs()
    except SlurmError as error:
        return _missing(f"squeue --json: {error.detail} (Debian: slurm-wlm-basic-plugins has the serializer)")
    return _ok(f"squeue --json lists {len(jobs)} jobs")


def _site_file(config: Mapping[str, str]) -> Path:
    return Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").with_name("rightsizer.conf")


def _names(config: Mapping[str, str], read_site: Callable[[Path], sites.SiteConfig]) -> Mapping[str, str]:
    """The site's map of gres types; `_daemon` reports errors in its file."""
    try:
        return read_site(_site_file(config)).gpus
    except RightsizerError:
        return {}


def _gpus(cluster: snapshot.SlurmCluster, names: Mapping[str, str]) -> Iterable[SiteFinding]:
    kinds = sorted({node.gpu for node in cluster.nodes if node.gpus})
    if not kinds:
        line = "NodeName=... Gres=gpu:h100:8 (and GresTypes=gpu, and gres.conf)"
        yield _missing("no node has GPUs in Slurm", "slurm.conf", line)
        return
    yield _ok(f"GPUs: {cluster.summary()}")
    unknown = []
    for kind in kinds:
        name = f"gpu:{kind}" if kind else "gpu without a type"
        mapped = names.get((kind or UNTYPED).lower(), "")
        if mapped == NOT_FOR_TRAINING:
            yield _note(f"{name} is not for training ([gpus] in rightsizer.conf): no job is sized to it")
            continue
        nodes = [node for node in cluster.nodes if node.gpu == kind and node.gpus]
        known = engine_name(kind, nodes, names=names)
        why = "from [gpus] in rightsizer.conf" if mapped else "a plan's gpuTypes may name a variant"
        if known:
            yield _ok(f"{name} is {known} ({why})")
        else:
            unknown.append((name, kind or UNTYPED))
    if unknown:
        yield _unknown(unknown, headed=bool(names))


def _unknown(kinds: Sequence[tuple[str, str]], *, headed: bool) -> SiteFinding:
    """The lines to add for unknown GPUs; as printed, they exclude these GPUs from sizing."""
    are = "is not a GPU" if len(kinds) == 1 else "are not GPUs"
    return _missing(
        f"{', '.join(name for name, _ in kinds)} {are} of the catalog, so no job is sized to them"
        f" unless it names one (gpu=...); add the catalog's name{' under [gpus]' if headed else ''}, or none",
        "rightsizer.conf",
        *(() if headed else ("[gpus]",)),
        *(f"{kind} = {NOT_FOR_TRAINING}    # or a name of `rightsizer gpus`" for _, kind in kinds),
    )


def _plugin(config: Mapping[str, str], exists: Callable[[Path], bool]) -> Iterable[SiteFinding]:
    folder = Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    plugins = config.get("JobSubmitPlugins", "")
    if "lua" in plugins.split(","):
        yield _ok("JobSubmitPlugins has lua")
    else:
        line = f"JobSubmitPlugins={f'{plugins},' if plugins else ''}lua"
        yield _missing("the submit plugin is not enabled", "slurm.conf", line)
    for name in _LUA:
        present = exists(folder / name)
        yield (
            _ok(f"{folder / name}")
            if present
            else _missing(f"{folder / name}: rightsizer slurm install --place writes it")
        )
    folders = [Path(top) / version for top in _LUA_FOLDERS for version in _LUA_VERSIONS]
    found = sorted({folder.name for folder in folders if exists(folder / "socket.lua")})
    if found:
        yield _ok(f"luasocket for Lua {', '.join(found)}")
    else:
        yield _missing(
            "luasocket for the Lua of slurmctld (Debian, EPEL: lua-socket); without it no job is sized"
        )


def _daemon(
    config: Mapping[str, str],
    read_site: Callable[[Path], sites.SiteConfig],
    exchange: Callable[[Path], str],
) -> Iterable[SiteFinding]:
    path = _site_file(config)
    try:
        site = read_site(path)
    except RightsizerError as error:
        why = error.remedy if isinstance(error, InputError) else str(error)
        yield _missing(f"{path}: {why}", path.name, "mode = warn")
        return
    yield _ok(f"{path}: mode {site.mode}")
    user = config.get("SlurmUser", "").split("(")[0]
    if user and user != site.user:
        yield _missing(
            f"the daemon runs as {site.user}, but slurmctld as {user}", path.name, f"user = {user}"
        )
    yield _response(site.socket, path, exchange)


def _response(at: Path, config: Path, exchange: Callable[[Path], str]) -> SiteFinding:
    """The daemon's response to a request that changes nothing."""
    try:
        response = exchange(at)
    except PermissionError:
        return _note(f"only root and SlurmUser may ask the daemon at {at}; run this check as root")
    except OSError as error:
        why = error.strerror or "no answer"
        return _missing(f"no daemon answers at {at} ({why}): rightsizer slurm daemon --config {config}")
    head, _, rest = response.partition("\n")
    said = next((line.removeprefix("say=") for line in rest.splitlines() if line.startswith("say=")), "")
    if not head.startswith(f"RIGHTSIZER {VERSION} "):
        return _missing(
            f"what listens at {at} is no daemon of this version: restart it ({one_line(head, 60)})"
        )
    return _ok(f"the daemon answers at {at}: {one_line(said, 160)}")


def exchanged(at: Path) -> str:
    """The daemon's response for a job that is not submitted. OSError if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(at))
        connection.sendall(request_text({"comment": _COMMENT, "mode": "warn"}))
        parts = iter(lambda: connection.recv(8192), b"")
        response = b"".join(parts).decode(errors="replace")
    if not response.endswith(END.decode()):
        raise OSError("an incomplete answer")
    return response


def _settings(config: Mapping[str, str]) -> Iterable[SiteFinding]:
    scheduling = config.get("SchedulerParameters", "")
    if "disable_job_shrink" in scheduling:
        yield _note("disable_job_shrink: running jobs cannot release nodes; they are requeued instead")
    if "cred_expire" not in config.get("AuthInfo", ""):
        yield _note(
            "a requeued job waits 120 s before it starts (cred_expire)", "AuthInfo=...,cred_expire=30"
        )
    if config.get("JobRequeue") == "0":
        yield _note("JobRequeue=0: only jobs submitted with --requeue can grow; rightsizer sbatch sets it")
    if config.get("KillOnBadExit") == "1":
        yield _note(
            "KillOnBadExit=1: your own scripts need srun --kill-on-bad-exit=0; rightsizer sbatch sets it"
        )
    private = config.get("PrivateData", "none")
    if "jobs" in private:
        yield _note(
            "PrivateData=jobs: the monitor sees only its own user's jobs, unless that user is an operator"
        )
    mail = config.get("MailProg", "")
    yield _ok(f"MailProg {mail}") if mail else _note("no MailProg: the monitor sends no mail")


def _pyslurm(version: tuple[int, int], installed: str) -> SiteFinding:
    if not installed:
        return _note("pyslurm is not installed: Slurm's commands are used instead, which is sufficient")
    if fits(installed, version):
        return _ok(f"pyslurm {installed} matches this Slurm")
    return _note(f"pyslurm {installed} is for another Slurm release; Slurm's commands are used instead")
