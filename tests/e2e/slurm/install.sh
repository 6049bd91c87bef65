#!/usr/bin/env bash
# Installs the Debian packages of the test cluster's Slurm, and skips what is there. Needs root only to install.
set -euo pipefail

. "$(dirname "$0")/../packages.sh"

libraries=/usr/lib/$(uname -m)-linux-gnu
need slurmctld "Slurm's controller" slurmctld
need slurmd "Slurm's daemon of a node; six of them run" slurmd
need slurm-client "sbatch, squeue, scontrol" sbatch
need munge "signs the messages between them" munged
need slurm-wlm-basic-plugins "job_submit/lua and cli_filter/lua" "$libraries/slurm-wlm/job_submit_lua.so"
need lua-socket "the plugin's way to the daemon's unix socket" "$libraries/lua/5.1/socket/unix.so" \
  /usr/share/lua/5.1/socket.lua
need slurmdbd "accounting: limits of QOS and associations" slurmdbd
need slurm-wlm-mysql-plugin "its way to a database" "$libraries/slurm-wlm/accounting_storage_mysql.so"
need mariadb-server "that database" mariadbd
need util-linux "unshare gives every machine its own processes" unshare nsenter

install_missing
