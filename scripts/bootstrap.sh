#!/usr/bin/env bash
# Builds the virtual environment $1 from requirements.lock with uv (which installs torch in seconds, pip in minutes).
# Needs only a Python >= 3.11. Where Debian's python3 has no venv module, installs python3-venv if it may.
set -euo pipefail

venv=${1:?usage: bootstrap.sh VENV}
python=${PYTHON:-python3}
uv_version=0.13.9
cd "$(dirname "$0")/.."

fail() { echo "error: $*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "$python not found: install Python 3.11 or newer, or set PYTHON="
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "$("$python" --version 2>&1) is too old: rightsizer needs 3.11 or newer; set PYTHON= to one"

# ensurepip is what Debian splits off into python3-venv
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
    || fail "$python has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"
  echo "installing python3-venv: Debian's python3 comes without the module that makes virtual environments"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
fi

# uv lives beside the environment, so that nothing outside this folder changes
if [ "$(.tools/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$uv_version" ]; then
  echo "installing uv $uv_version into .tools"
  rm -rf .tools
  "$python" -m venv .tools
  .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

echo "installing the locked packages into $venv (torch is the largest: about 3 GB the first time)"
[ -x "$venv/bin/python" ] || .tools/bin/uv venv --quiet --python "$python" "$venv"
.tools/bin/uv pip install --quiet --python "$venv/bin/python" --require-hashes --requirement requirements.lock
.tools/bin/uv pip install --quiet --python "$venv/bin/python" --no-deps --editable .

# uv leaves no bytecode, and where PYTHONDONTWRITEBYTECODE is set Python never will: every command would compile anew
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -q -j 0 sizing crds launch telemetry local slurm operator cli python \
  "$site"/{numpy,pydantic,rich,typer,yaml,markdown_it,pygments,hypothesis,pytest,_pytest,xdist} >/dev/null || true &
# of the large ones only what workers (optimizers import _dynamo), the operator and plots import: half of a start is compiling
example="torch.distributed.checkpoint.state_dict, torch.distributed.fsdp, torch.distributed.tensor.parallel"
for imported in "torch.distributed.run, torch._dynamo, $example" rightsizer_operator.runtime.main matplotlib.figure; do
  env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c "import $imported" 2>/dev/null || true &
done
wait
"$venv/bin/rightsizer" --version
