"""Mutation testing: changes one operator or number at a time and counts how many changes a unit test notices.

cosmic-ray makes each change and runs the tests; this module draws a seeded sample, stratified by file, and
maps each file to the tests that must notice. It works in copies of the tree under a temporary folder. Results
go to results/mutants.json by seed, with the commit of the source; `mutants_survivors.csv` gives the reason of
each known survivor.

    python -m bench.mutants [--sample 240] [--seed 15] [--minutes 120] [--workers 2]
    python -m bench.mutants --only reconcile
    python -m bench.mutants --survivors

`--survivors` runs the recorded survivors again, after a test was added; the source must be unchanged.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path

import numpy as np
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "mutants.json"
REASONS = ROOT / "bench" / "mutants_survivors.csv"

_BY_HAND = " ".join(
    f"tests/sizing/estimate/{name}_by_hand.py"
    for name in ("memory/test_memory", "step/test_time", "test_work", "test_primitives", "test_correction")
)
_ENGINE = (_BY_HAND, "tests/sizing/estimate", "tests/sizing/search")
TESTS_OF: Mapping[str, tuple[str, ...]] = {
    "sizing/rightsizer_engine/estimate/**/*.py": _ENGINE,
    "sizing/rightsizer_engine/search/pricing/rows.py": (
        "tests/sizing/search/test_plan.py",
        "tests/sizing/search",
    ),
    "sizing/rightsizer_engine/search/reasons.py": (
        "tests/sizing/search/test_reasons.py",
        "tests/sizing/search",
    ),
    "sizing/rightsizer_engine/resize/*.py": ("tests/sizing/resize",),
    "operator/rightsizer_operator/reconcile/*.py": ("tests/operator/reconcile", "tests/operator"),
    "slurm/rightsizer_slurm/monitor/decide.py": ("tests/slurm/monitor",),
    "slurm/rightsizer_slurm/monitor/rollback.py": ("tests/slurm/monitor",),
    "slurm/rightsizer_slurm/submit/choice.py": ("tests/slurm/submit",),
    "slurm/rightsizer_slurm/submit/placement.py": ("tests/slurm/submit",),
    "launch/rightsizer_launch/running/marks.py": (
        "tests/launch/running/test_readings.py",
        "tests/launch",
    ),
    "local/rightsizer_local/resize.py": ("tests/local",),
    "local/rightsizer_local/supervisor.py": ("tests/local",),
}
"""The engine's arithmetic and the three decision paths; the tests that must notice, quickest first."""

_PAIRS = (
    "Binary:Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Div Mod_Mul Pow_Mul BitAnd_BitOr BitOr_BitAnd "
    "Comparison:Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_GtE GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is "
    "Unary:USub_UAdd Delete_Not Delete_Invert"
)
_OTHERS = (
    "NumberReplacer AddNot ReplaceAndWithOr ReplaceOrWithAnd ReplaceTrueWithFalse ReplaceFalseWithTrue "
    "ReplaceBreakWithContinue ReplaceContinueWithBreak ExceptionReplacer ZeroIterationForLoop"
)
_ANNOTATIONS = ("annassign", "tfpdef")
_TIMEOUT_S = 240.0
_LEAST_PER_FILE = 3
_LARGE = 1e6


def operators() -> Iterator[str]:
    """Names of cosmic-ray's operators that mostly leave running code, so that few mutants die by a crash."""
    kind = ""
    for word in _PAIRS.split():
        prefix, _, pair = word.rpartition(":")
        kind = prefix or kind
        yield f"core/Replace{kind}Operator_{pair}"
    yield from (f"core/{name}" for name in _OTHERS.split())


def mutations(path: Path) -> list[MutationSpec]:
    """Every possible change of a file, annotations and generics left out."""
    nodes = list(ast_nodes(get_ast_from_path(path)))
    specs = []
    for name in operators():
        positions = [(n, at) for n in nodes for at in get_operator(name)().mutation_positions(n)]
        specs += [
            MutationSpec(str(path.relative_to(ROOT)), name, i, start, end)
            for i, (node, (start, end)) in enumerate(positions)
            if not (_in_annotation(node) or (name.endswith("NumberReplacer") and _is_large(node)))
        ]
    return specs


def _in_annotation(node: object) -> bool:
    """True in an annotation, and for the bare star of a signature."""
    if getattr(getattr(node, "parent", None), "type", "") == "parameters":
        return True
    while (parent := getattr(node, "parent", None)) is not None:
        if parent.type in _ANNOTATIONS or (parent.type == "funcdef" and node is parent.annotation):
            return True
        node = parent
    return False


def _is_large(number: object) -> bool:
    """True where the change, by 1, is less than a millionth of the number: no test should see it."""
    return abs(complex(getattr(number, "value", "0"))) > _LARGE


def sample(size: int, seed: int, only: str) -> list[tuple[MutationSpec, tuple[str, ...]]]:
    """About `size` mutations with their tests, shuffled: of each file in proportion, by its own seed."""
    found = {
        path: (mutations(path), tests)
        for pattern, tests in TESTS_OF.items()
        for path in _matching(pattern)
        if re.search(only, str(path.relative_to(ROOT)))
    }
    total = sum(len(every) for every, _ in found.values())
    drawn = []
    for path, (every, tests) in found.items():
        count = min(len(every), max(_LEAST_PER_FILE, round(size * len(every) / total)))
        rng = np.random.default_rng([seed, *path.name.encode()])
        drawn += [(every[i], tests) for i in sorted(rng.choice(len(every), count, replace=False))]
    return [drawn[i] for i in np.random.default_rng(seed).permutation(len(drawn))]


def _matching(pattern: str) -> list[Path]:
    paths = sorted(path for path in ROOT.glob(pattern) if path.name != "__init__.py")
    assert paths, f"no file matches {pattern}"
    return paths


def copy_tree(folder: Path) -> None:
    """Copies what git tracks or would track, with bytecode, and makes this process work there."""
    tree = folder / str(os.getpid())
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    roots = [part.parent.parent for part in tree.glob("*/rightsizer*/__init__.py")]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, roots))
    os.chdir(tree)
    subprocess.run([sys.executable, "-m", "compileall", "-q", *map(str, roots)], check=True)


def outcome(spec: MutationSpec, tests: tuple[str, ...], seed: int) -> dict[str, object]:
    """Runs the tests with one change: where it is, the line before and after, and whether a test failed."""
    pytest = f"{sys.executable} -m pytest -x -q -p no:cacheprovider -p no:xdist --hypothesis-seed={seed}"
    for part in tests:
        command = f"{pytest} -m 'not torchrun and not slow' {part}"
        result = mutate_and_test([spec], command, _TIMEOUT_S)
        if result.is_killed:
            break
    lines = (result.diff or "").splitlines()
    before = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    after = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    print(
        "." if result.is_killed else f"\n{spec.module_path}:{spec.start_pos[0]}  {before} -> {after}",
        flush=True,
    )
    return {
        "file": _key(spec)[0],
        "line": spec.start_pos[0],
        "change": _key(spec)[1],
        "before": " ".join(before),
        "after": " ".join(after),
        "killed": result.is_killed,
    }


def _key(spec: MutationSpec) -> tuple[str, str]:
    return str(spec.module_path), f"{spec.operator_name} {spec.occurrence}"


def summary(outcomes: list[dict[str, object]]) -> dict[str, object]:
    """Counts by file, and the survivors with the reason where one is known.

    The first share counts every mutant; the second leaves out those that change no result.
    """
    with REASONS.open(newline="") as file:
        reasons = {(row["file"], row["before"], row["after"]): row["reason"] for row in csv.DictReader(file)}
    files = sorted({str(o["file"]) for o in outcomes})
    survivors = [
        {k: o[k] for k in ("file", "line", "change", "before", "after")}
        | {"reason": reasons.get((str(o["file"]), str(o["before"]), str(o["after"])), "")}
        for o in outcomes
        if not o["killed"]
    ]
    killed = len(outcomes) - len(survivors)
    equivalent = sum(str(o["reason"]).startswith("equivalent") for o in survivors)
    commit = ["git", "rev-parse", "--short", "HEAD"]
    return {
        "commit": subprocess.run(commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip(),
        "mutants": len(outcomes),
        "killed": killed,
        "killed_share": round(killed / len(outcomes), 3),
        "killed_share_without_equivalents": round(killed / (len(outcomes) - equivalent), 3),
        "files": {
            name: f"{sum(bool(o['killed']) for o in outcomes if o['file'] == name)}"
            f"/{sum(o['file'] == name for o in outcomes)}"
            for name in files
        },
        "survivors": survivors,
    }


def main() -> None:
    """Draws, runs and records; without `--only` the results are written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=240)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--only", default="", help="a pattern of paths; writes no results")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=120.0, help="begin none after so long")
    parser.add_argument("--survivors", action="store_true", help="run the recorded survivors again")
    args = parser.parse_args()
    drawn = sample(args.sample, args.seed, args.only)
    killed = []
    results = json.loads(RESULTS.read_text())
    if args.survivors:
        recorded = results[str(args.seed)]
        alive = {(s["file"], s["change"]) for s in recorded["survivors"]}
        drawn = [(spec, tests) for spec, tests in drawn if _key(spec) in alive]
        counts = {name: int(share.split("/")[0]) for name, share in recorded["files"].items()}
        killed = [{"file": name, "killed": True} for name, count in counts.items() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        start = partial(copy_tree, Path(folder))
        with ProcessPoolExecutor(args.workers, initializer=start) as pool:
            runs = [pool.submit(outcome, spec, tests, args.seed) for spec, tests in drawn]
            wait(runs, timeout=60 * args.minutes)
            pool.shutdown(cancel_futures=True)
            outcomes = killed + [run.result() for run in runs if not run.cancelled()]
    results[str(args.seed)] = summary(outcomes)
    print(json.dumps(results[str(args.seed)], indent=1))
    if not args.only:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
