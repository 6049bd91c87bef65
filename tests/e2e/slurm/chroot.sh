#!/usr/bin/env bash
# Slurm's tests on the Slurm of another Debian release, in a chroot made of its packages: chroot.sh RELEASE [pytest ...]
# trixie has 24.11, forky 26.05. sid has 26.05 with Apptainer; there our worker image lies in /srv/images.
# Needs root and Debian; a release that is not to be had is skipped with its reason.
set -euo pipefail

release=${1:?usage: chroot.sh RELEASE [what pytest is told]}
shift
repository=$(cd "$(dirname "$0")/../../.." && pwd)
root=${XDG_CACHE_HOME:-$HOME/.cache}/rightsizer/slurm-$release
packages=munge,slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,lua-socket # as install.sh, with its reasons
packages+=,util-linux,procps,hostname                                           # unshare, ps and a name for the host
packages+=,libffi8,libsqlite3-0,libssl3,libbz2-1.0,liblzma5,zlib1g              # what this machine's Python is linked to
packages+=,libreadline8,libncursesw6
[ "$release" = sid ] && packages+=,apptainer,squashfuse # a user without root mounts an image through squashfuse

skip() { echo "skipped: Slurm of Debian $release: $*"; exit 0; }

[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v apt-get >/dev/null || skip "a chroot is made of Debian's packages"
. "$repository/tests/e2e/packages.sh"
need mmdebstrap "makes a chroot of a release's packages" mmdebstrap
install_missing
if [ ! -e "$root/.ready" ]; then
  rm -rf "$root"
  mkdir -p "$root"
  # a release that still changes may be dated after this machine's clock, or past its validity
  mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' \
    "$release" "$root" || skip "mmdebstrap could not make it"
  echo "127.0.0.1 localhost $(hostname)" > "$root/etc/hosts"
  touch "$root/.ready"
fi
if [ "$release" = sid ]; then
  (cd "$repository" && .venv/bin/python -m deploy.images.build worker-transformers --newest --out "$root/srv/images")
  rm "$root"/srv/images/*.tar
  chmod 755 "$root/root" # users of the tests run this Python, which may be mounted in there
fi

python=$("$repository/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
runtime=$(mktemp -d)
trap 'rm -rf "$runtime"' EXIT
export RIGHTSIZER_ROOT=$root RIGHTSIZER_RUNTIME=$runtime PYTHON_HOME=$python REPOSITORY=$repository
# mounts live and die with this namespace; its root is changed, because in a chroot nobody may make a user namespace
unshare --mount --propagation private bash -euo pipefail -c '
  mount --bind "$RIGHTSIZER_ROOT" "$RIGHTSIZER_ROOT" # a new root must be a mount
  for each in /proc /sys /dev /tmp "$PYTHON_HOME" "$REPOSITORY"; do
    mkdir -p "$RIGHTSIZER_ROOT$each"
    mount --rbind "$each" "$RIGHTSIZER_ROOT$each"
  done
  mount --bind "$RIGHTSIZER_RUNTIME" "$RIGHTSIZER_ROOT/run"
  chmod 755 "$RIGHTSIZER_RUNTIME"
  cd "$RIGHTSIZER_ROOT"
  mkdir -p before
  pivot_root . before
  umount --lazy /before
  cd "$REPOSITORY"
  slurmctld -V
  exec env HOME=/root RIGHTSIZER_SLURM=release bash -c "exec .venv/bin/pytest -q -m slurm \"\$@\"" pytest "$@"
' chroot "$@"
