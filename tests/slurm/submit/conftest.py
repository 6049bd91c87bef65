"""A pretended slurmctld that loads job_submit.lua."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lupa.lua51
import pytest

SOURCES = Path(__file__).resolve().parents[3] / "slurm/rightsizer_slurm/data"
NO_VALUE = 4294967294.0


class Slurmctld:
    """Slurmctld's side of job_submit.lua: `slurm.*`, and a socket that gives a prepared response."""

    def __init__(self, module: Any, folder: Path, *, config: str | None = "mode = size\n") -> None:
        self.messages: list[str] = []
        self.logged: list[str] = []
        self.requests: list[str] = []
        self.response: bytes | None = b""
        self.now_s = 1000
        self.folder, self.conf = folder, folder / "rightsizer.conf"
        for path in SOURCES.glob("*.lua"):
            (folder / path.name).write_text(path.read_text())
        (folder / "slurm.conf").write_text(f"ClusterName=c\nStateSaveLocation={folder}\n")
        if config is not None:
            self.conf.write_text(config)
        self.lua = module.LuaRuntime(encoding="latin-1")
        self._prepare()
        self.lua.globals().plugin = f"{folder}/job_submit.lua"
        self.lua.execute("dofile(plugin)")

    def _prepare(self) -> None:
        host = self.lua.globals()
        host.tell, host.write = self.messages.append, self.logged.append
        host.exchange, host.clock = self._exchange, lambda: self.now_s
        self.lua.execute(
            """
            slurm = { SUCCESS = 0, ERROR = -1 }
            function slurm.log_user(...) tell(string.format(...)) end
            function slurm.log_info(...) write(string.format(...)) end
            slurm.log_error = slurm.log_info
            os.time = function() return clock() end
            local connection = {}
            function connection:settimeout(seconds, kind) end
            function connection:connect(path) return 1 end
            function connection:send(text) self.text = text; return #text end
            function connection:receive(size)
               local response = exchange(self.text)
               if response == nil then return nil, "timeout", "" end
               return nil, "closed", response
            end
            function connection:close() end
            package.preload["socket.unix"] = function() return function() return connection end end
            """
        )

    def _exchange(self, text: str) -> str | None:
        self.requests.append(text)
        return None if self.response is None else self.response.decode("latin-1")

    def submit(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """The plugin's verdict and the job as it leaves it; a second later than the one before."""
        self.now_s += 1
        unset = dict.fromkeys(
            ("min_nodes", "max_nodes", "time_limit", "num_tasks", "het_job_offset"), NO_VALUE
        )
        job = self.lua.table_from(unset | {"script": "#!/bin/sh", "user_name": "alice"} | fields)
        job.environment = self.lua.table()
        code = self.lua.globals().slurm_job_submit(job, self.lua.table(), 1000)
        return code, {key: job[key] for key in job}

    def modify(self, change: dict[str, Any], record: dict[str, Any], *, uid: int = 1000) -> int:
        """The plugin's verdict on an update."""
        self.now_s += 1
        tables = (self.lua.table_from(change), self.lua.table_from(record), self.lua.table())
        return int(self.lua.globals().slurm_job_modify(*tables, uid))


@pytest.fixture
def slurmctld_of(tmp_path: Path) -> Callable[..., Slurmctld]:
    """A pretended slurmctld with this Lua and these settings."""

    def make(module: Any = lupa.lua51, *, config: str | None = "mode = size\n") -> Slurmctld:
        return Slurmctld(module, tmp_path, config=config)

    return make
