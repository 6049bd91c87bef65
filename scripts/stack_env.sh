#!/usr/bin/env bash
# Builds the environment of training stack $1 from its lock, kept outside the checkout; prints its Python.
# uv links its files to its cache: the second stack costs seconds and little disk.
set -euo pipefail

stack=${1:?usage: stack_env.sh STACK}
cd "$(dirname "$0")/.."
lock=tests/e2e/stacks/locks/$stack.lock
[ -f "$lock" ] || { echo "error: no $lock; stacks: $(cd tests/e2e/stacks/locks && ls | sed 's/\.lock//' | xargs)" >&2; exit 2; }
venv=${XDG_CACHE_HOME:-$HOME/.cache}/rightsizer/stacks/$stack
digest=$(sha256sum "$lock" | cut -d' ' -f1)

mkdir -p "$venv"
exec 9>"$venv.lock"
flock 9
if [ "$(cat "$venv/.ready" 2>/dev/null)" != "$digest" ]; then
  rm -rf "$venv"
  .tools/bin/uv venv --quiet --python .venv/bin/python "$venv" >&2
  .tools/bin/uv pip install --quiet --python "$venv/bin/python" --require-hashes --requirement "$lock" >&2
  # what a worker imports, compiled once: half of a start is compiling
  imports=$(sed -n 's/^# imports: //p' "tests/e2e/stacks/locks/$stack.in")
  env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -W ignore -c "import torch.distributed.run, torch._dynamo, $imports" >&2
  # and the C++ extension that a stack would compile in its first training
  builds=$(sed -n 's/^# builds: //p' "tests/e2e/stacks/locks/$stack.in")
  if [ "$builds" ]; then
    PATH="$venv/bin:$PATH" TORCH_EXTENSIONS_DIR="$venv/torch_extensions" "$venv/bin/python" -W ignore -c "$builds" >&2
  fi
  echo "$digest" > "$venv/.ready"
fi
echo "$venv/bin/python"
