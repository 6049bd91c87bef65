"""`rightsizer slurm install --check`: what a site still lacks, and the lines to add. Edits nothing."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rightsizer.errors import InputError, RightsizerError
from rightsizer.values import immutable
from rightsizer_slurm.cluster import config as sites
from rightsizer_slurm.cluster import snapshot
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import fits, pyslurm_version
from rightsizer_slurm.cluster.pools import NOT_FOR_TRAINING, UNTYPED, engine_name
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings

__all__ = ["Finding", "State", "check"]

_OLDEST = (22, 5)
_LUA = ("job_submit.lua", "rightsizer.lua")


class State(enum.StrEnum):
    """How a thing stands: there, to be done, or only worth knowing."""

    OK = "ok"
    MISSING = "missing"
    NOTE = "note"


@immutable
class Finding:
    """One thing looked at; `lines` are to be added to `file`."""

    state: State
    what: str
    file: str = ""
    lines: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The finding, its lines beneath it."""
        added = "".join(f"\n    {self.file}: {line}" for line in self.lines)
        return f"{self.state:8}{self.what}{added}"


def check(
    slurm: Slurm | None = None,
    *,
    exists: Callable[[Path], bool] = Path.exists,
    read_site: Callable[[Path], sites.Site] = sites.read,
) -> tuple[Finding, ...]:
    """Everything, the needful first. Where Slurm does not answer, that is the one finding."""
    slurm = slurm or Slurm()
    try:
        version = SlurmCommands(slurm).version()
        config = settings(slurm)
        here = snapshot.read(slurm)
    except SlurmError as error:
        return (Finding(state=State.MISSING, what=f"Slurm: {error}"),)
    return (
        _version(version),
        _json(slurm),
        *_gpus(here, _names(config, read_site)),
        *_plugin(config, exists),
        *_daemon(config, read_site, exists),
        *_settings(config),
        _pyslurm(version, pyslurm_version()),
    )


def _ok(what: str) -> Finding:
    return Finding(state=State.OK, what=what)


def _note(what: str, *lines: str) -> Finding:
    return Finding(state=State.NOTE, what=what, file="slurm.conf", lines=lines)


def _missing(what: str, file: str = "", *lines: str) -> Finding:
    return Finding(state=State.MISSING, what=what, file=file, lines=lines)


def _version(version: tuple[int, int]) -> Finding:
    words = f"Slurm {version[0]}.{version[1]:02}"
    if version < _OLDEST:
        return _missing(f"{words} is older than 22.05, the oldest that rightsizer was tried with")
    return _ok(words)


def _json(slurm: Slurm) -> Finding:
    try:
        jobs = SlurmCommands(slurm).jobs()
    except SlurmError as error:
        return _missing(f"squeue --json: {error.detail} (Debian: slurm-wlm-basic-plugins has the serializer)")
    return _ok(f"squeue --json tells of {len(jobs)} jobs")


def _site_file(config: Mapping[str, str]) -> Path:
    return Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").with_name("rightsizer.conf")


def _names(config: Mapping[str, str], read_site: Callable[[Path], sites.Site]) -> Mapping[str, str]:
    """The site's map of gres types; what is wrong with its file is told elsewhere."""
    try:
        return read_site(_site_file(config)).gpus
    except RightsizerError:
        return {}


def _gpus(here: snapshot.Cluster, names: Mapping[str, str]) -> Iterable[Finding]:
    kinds = sorted({node.gpu for node in here.nodes if node.gpus})
    if not kinds:
        line = "NodeName=... Gres=gpu:h100:8 (and GresTypes=gpu, and gres.conf)"
        yield _missing("no node has GPUs that Slurm knows of", "slurm.conf", line)
        return
    yield _ok(f"GPUs: {here.words()}")
    unknown = []
    for kind in kinds:
        told = f"gpu:{kind}" if kind else "gpu without a type"
        mapped = names.get((kind or UNTYPED).lower(), "")
        if mapped == NOT_FOR_TRAINING:
            yield _note(f"{told} is not for training ([gpus] of rightsizer.conf): no job is sized to it")
            continue
        nodes = [node for node in here.nodes if node.gpu == kind and node.gpus]
        known = engine_name(kind, nodes, names=names)
        why = "by [gpus] of rightsizer.conf" if mapped else "a plan's gpuTypes may name a variant"
        if known:
            yield _ok(f"{told} is {known} here ({why})")
        else:
            unknown.append((told, kind or UNTYPED))
    if unknown:
        yield _unknown(unknown, headed=bool(names))


def _unknown(kinds: Sequence[tuple[str, str]], *, headed: bool) -> Finding:
    """What to write of GPUs that are not known; as printed, the lines keep jobs off them."""
    are = "is no GPU" if len(kinds) == 1 else "are no GPUs"
    return _missing(
        f"{', '.join(told for told, _ in kinds)} {are} that the engine knows, so no job is sized to them"
        f" unless it names one (gpu=...); say{' under [gpus]' if headed else ''} what they are, or none",
        "rightsizer.conf",
        *(() if headed else ("[gpus]",)),
        *(f"{kind} = {NOT_FOR_TRAINING}    # or a name of `rightsizer gpus`" for _, kind in kinds),
    )


def _plugin(config: Mapping[str, str], exists: Callable[[Path], bool]) -> Iterable[Finding]:
    folder = Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    plugins = config.get("JobSubmitPlugins", "")
    if "lua" in plugins.split(","):
        yield _ok("JobSubmitPlugins has lua")
    else:
        line = f"JobSubmitPlugins={f'{plugins},' if plugins else ''}lua"
        yield _missing("the submit plugin is not on", "slurm.conf", line)
    for name in _LUA:
        found = exists(folder / name)
        yield _ok(f"{folder / name}") if found else _missing(f"{folder / name}: copy it from slurm/lua")
    places = (Path("/usr/share/lua/5.1/socket.lua"), Path("/usr/local/share/lua/5.1/socket.lua"))
    if any(exists(place) for place in places):
        yield _ok("luasocket for Lua 5.1")
    else:
        yield _missing(
            "luasocket for the Lua of slurmctld (Debian: lua-socket); without it jobs go as written"
        )


def _daemon(
    config: Mapping[str, str],
    read_site: Callable[[Path], sites.Site],
    exists: Callable[[Path], bool],
) -> Iterable[Finding]:
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
        yield _missing(f"the daemon runs as {site.user}, slurmctld as {user}", path.name, f"user = {user}")
    if exists(site.socket):
        yield _ok(f"the daemon's socket {site.socket}")
    else:
        yield _missing(f"no daemon at {site.socket}: rightsizer slurm daemon --config {path}")


def _settings(config: Mapping[str, str]) -> Iterable[Finding]:
    scheduling = config.get("SchedulerParameters", "")
    if "disable_job_shrink" in scheduling:
        yield _note("disable_job_shrink keeps running jobs from giving nodes back live; they are requeued")
    if "cred_expire" not in config.get("AuthInfo", ""):
        yield _note("a requeued job waits 120 s (cred_expire)", "AuthInfo=...,cred_expire=30")
    if config.get("JobRequeue") == "0":
        yield _note("JobRequeue=0: only jobs submitted with --requeue grow; rightsizer sbatch does so")
    if config.get("KillOnBadExit") == "1":
        yield _note("KillOnBadExit=1: scripts that are not rightsizer's need srun --kill-on-bad-exit=0")
    private = config.get("PrivateData", "none")
    if "jobs" in private:
        yield _note("PrivateData=jobs: the monitor sees only its own unless its user is an operator")
    mail = config.get("MailProg", "")
    yield _ok(f"MailProg {mail}") if mail else _note("no MailProg: the monitor sends no mail")


def _pyslurm(version: tuple[int, int], installed: str) -> Finding:
    if not installed:
        return _note("no pyslurm: Slurm's own commands are used, which is enough")
    if fits(installed, version):
        return _ok(f"pyslurm {installed} fits")
    return _note(f"pyslurm {installed} is for another Slurm; Slurm's own commands are used")
