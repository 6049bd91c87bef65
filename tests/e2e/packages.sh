# Sourced by the install.sh of each test cluster: what is missing from Debian is named with its reason, then installed.

fail() { echo "error: $*" >&2; exit 1; }

PATH=$PATH:/usr/sbin:/sbin
missing=()
need() { # need PACKAGE WHY PROGRAM-OR-FILE...: any one of the last is enough
  local package=$1 why=$2 found
  shift 2
  for found in "$@"; do
    if command -v "$found" >/dev/null || [ -e "$found" ]; then return; fi
  done
  echo "$package: $why" >&2
  missing+=("$package")
}

install_missing() {
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || fail "installing ${missing[*]} needs root"
  command -v apt-get >/dev/null || fail "no apt-get here: install ${missing[*]} with this system's package manager"
  # policy-rc.d keeps Debian from starting daemons of its own: each test cluster starts what it needs
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap "rm -f $policy" EXIT
  fi
  echo "installing ${missing[*]}" >&2
  # two of these scripts may run at once, and a machine may be updating itself: both wait
  exec 8>/run/lock/rightsizer-packages.lock
  flock 8
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  exec 8>&-
}
