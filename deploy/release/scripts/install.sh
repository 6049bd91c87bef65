#!/bin/sh
# Links the newest Python that has libraries here, and compiles them: the daemon's user cannot write bytecode.
set -eu
cd "${RIGHTSIZER_PREFIX:-/opt/rightsizer}"
for version in 3.13 3.12 3.11; do
  python=/usr/bin/python$version
  if [ -x "$python" ] && [ -d "lib/python$version" ]; then
    ln -sf "$python" bin/python
    "$python" -m compileall -q -q "lib/python$version" || true # some libraries hold templates
    exit 0
  fi
done
echo "rightsizer: no /usr/bin/python3.13, python3.12 or python3.11 here: install one, then reinstall this package" >&2
exit 1
