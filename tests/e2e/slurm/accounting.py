"""Accounting of a cluster: MariaDB and slurmdbd, loopback only. Nothing here starts anything."""

import shutil
import subprocess
from pathlib import Path

from place import USER, ClusterError, Place

DAEMONS = ("mariadbd", "slurmdbd")
PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr")

_SLURM_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={home}/run/munge.sock
AccountingStorageTRES=gres/gpu,gres/gpu:h100,gres/gpu:a100
AccountingStorageEnforce=associations,limits,qos
"""
"""AccountingStoragePass names the munge socket: slurmctld would else look for the system's own."""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={home}/run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser={user}
StoragePass=of-the-tests
StorageLoc=slurm_acct_db
PidFile={home}/run/slurmdbd.pid
LogFile={home}/log/slurmdbd.log
CommunicationParameters=NoInAddrAny
"""

_GRANT = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE OR REPLACE USER {user}@'127.0.0.1' IDENTIFIED BY 'of-the-tests';
CREATE OR REPLACE USER {user}@localhost IDENTIFIED BY 'of-the-tests';
GRANT ALL ON slurm_acct_db.* TO {user}@'127.0.0.1', {user}@localhost;
"""


def slurm_conf(at: Place, port: int) -> str:
    """slurm.conf's lines, and slurmdbd.conf beside it; two ports from `port` on are taken."""
    path = at.etc / "slurmdbd.conf"
    path.write_text(_SLURMDBD_CONF.format(home=at.home, port=port, database=port + 1, user=USER))
    path.chmod(0o600)
    shutil.chown(path, USER, USER)
    (at.run / "mariadb.port").write_text(str(port + 1))
    return _SLURM_CONF.format(home=at.home, port=port)


def make_database(at: Place) -> None:
    """An empty MariaDB."""
    folder = at.home / "db"
    folder.mkdir(exist_ok=True)
    argv = [
        "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}", "--skip-test-db",
        "--auth-root-authentication-method=normal",
    ]  # fmt: skip
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"mariadb-install-db: {done.stderr.strip()[-300:]}")


def mariadbd(at: Place) -> list[str | Path]:
    """The command of MariaDB."""
    port = (at.run / "mariadb.port").read_text()
    return [
        "mariadbd", "--no-defaults", "--user=root", f"--datadir={at.home}/db",
        f"--socket={at.run}/mysql.sock", f"--pid-file={at.run}/mariadbd.pid", "--bind-address=127.0.0.1",
        f"--port={port}", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=2",
    ]  # fmt: skip


def is_open(at: Place) -> bool:
    """True if MariaDB responds; creates slurmdbd's user."""
    argv = ["mariadb", "--no-defaults", "--user=root", f"--socket={at.run}/mysql.sock"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, input=_GRANT.format(user=USER))
    return done.returncode == 0
