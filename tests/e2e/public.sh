#!/usr/bin/env bash
# Run a command at the root of a checkout that pods and Slurm's users can read: of this one, or of a copy.
#
# Pods of the tests see the checkout where it lies, and mount a /tmp of their own; the tests' Slurm runs as a
# user of its own. Neither can use a checkout below /tmp or below a private folder: such a one is copied, and
# the copy has a virtual environment of its own, which stays there for the next time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

open_to_all() {
  local folder=$1
  while [[ $folder != / ]]; do
    [[ $(stat --format=%A "$folder") == *[xt] ]] || return 1
    folder=$(dirname "$folder")
  done
}

copied() {  # $1: the copy, as the checkout is now; tests that run in it are waited for
  mkdir --parents --mode=755 "$1"
  flock --exclusive --nonblock 9 || { echo "waiting for other tests in $1" >&2; flock --exclusive 9; }
  find "$1" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .tools ! -name .pytest_cache -exec rm --recursive --force {} +
  tar --create --mode=a+rX --owner=root --group=root --exclude=./.git --exclude=./.venv --exclude=./.tools \
    --exclude='./.*_cache' --exclude=./runs . | tar --extract --preserve-permissions --directory="$1"
}

if [[ $PWD == /tmp/* ]] || ! open_to_all "$PWD"; then
  copy=/var/lib/rightsizer-checkout
  [[ $(id --user) == 0 ]] || { echo "error: $PWD: others cannot read it, and only root can copy it to $copy" >&2; exit 1; }
  echo "in $copy, since pods and other users cannot read $PWD" >&2
  exec 9> "$copy.lock"
  # make ci copies once, before its series run there side by side
  [[ ${RIGHTSIZER_COPIED:-} == "$copy" ]] || copied "$copy"
  flock --shared 9
  export RIGHTSIZER_COPIED=$copy
  cd "$copy"
fi
# pytest closes /tmp/pytest-of-USER to others whenever it starts; Slurm's users read files of a test that runs
export PYTEST_DEBUG_TEMPROOT=/tmp/rightsizer-tests${RIGHTSIZER_SLURM:+-$RIGHTSIZER_SLURM}
mkdir --parents --mode=755 "$PYTEST_DEBUG_TEMPROOT"
exec "$@"
