"""The suites of tests and checks as a table: what each runs, what it needs, where it runs in CI.

`python scripts/ci.py list` prints it. A suite's commands are lines of bash, run at the root of the checkout;
the first that fails ends them. More options for pytest: PYTEST_ADDOPTS.
"""

from dataclasses import dataclass

PYTEST = ".venv/bin/pytest -q"
PYTHON = ".venv/bin/python"
MYPY = (
    '.venv/bin/mypy --cache-dir "${RIGHTSIZER_CACHE:-$HOME/.cache/rightsizer}/mypy'  # and the folder's name"
)
NO_PACKAGE = "--strict --config-file= --explicit-package-bases"
LAYER = '"tests/${LAYER:-}"'
"""A layer of the tests, as in `make test LAYER=operator`."""
BUILD = f"{PYTHON} tests/e2e/cluster/cluster.py build"
KUBERNETES = (
    "tests/e2e/cluster/install.sh",
    "tests/e2e/prometheus/install.sh",
    f"{BUILD} kubernetes etcd coredns helm kueue jobset trainer > /dev/null",
)
SLURM = ("tests/e2e/slurm/install.sh", "tests/e2e/prometheus/install.sh")
KEEP_ORDER = "--no-loadscope-reorder --durations=15"
ON_KUBERNETES = f"{PYTEST} -o cache_dir=.pytest_cache/kubernetes -n 2 --dist loadgroup {KEEP_ORDER}"
ON_SLURM = f"{PYTEST} -o cache_dir=.pytest_cache/slurm -n 3 --dist loadfile {KEEP_ORDER}"
SLURM_TYPED = "accounting.py cluster.py machines.py place.py settings.py"
SLURM_TESTS = "tests/e2e/loop tests/e2e/slurm_jobs tests/e2e/slurm"
SLURM_NEWER = " ".join(
    f"tests/e2e/slurm/{name}"
    for name in (
        "test_slurm_cluster.py",
        "test_slurm_sizing.py::test_a_job_gets_the_size_on_the_terminal",
        "test_slurm_sizing.py::test_less_time_takes_more_gpus",
        "test_slurm_enforce.py::test_a_held_job_is_not_released_before_it_is_sized",
        "test_slurm_enforce.py::test_a_refused_job_ends_with_its_reason_and_its_owner_cannot_run_it",
        "test_slurm_enforce.py::test_no_fault_opens_an_enforced_partition_or_closes_another",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """`minutes` are those of two idle cores. `public`: it runs where other users may read the checkout."""

    name: str
    says: str
    commands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    minutes: float = 1
    public: bool = False


SUITES = (
    Suite(
        name="style",
        says="format, lint, layer contracts",
        commands=(".venv/bin/ruff format --check .", ".venv/bin/ruff check .", ".venv/bin/lint-imports"),
        minutes=0.2,
    ),
    Suite(
        name="types",
        says="mypy",
        commands=(
            f'{MYPY}/packages"',
            f'(cd tests/e2e/cluster && ../../../{MYPY}/cluster" {NO_PACKAGE} *.py)',
            f'(cd tests/e2e/slurm && ../../../{MYPY}/slurm" {NO_PACKAGE} {SLURM_TYPED})',
        ),
        minutes=0.5,
    ),
    Suite(
        name="generated",
        says="generated files are what `make generate` writes",
        commands=(
            f"{PYTHON} -m rightsizer_api.schema.generate --check",
            f"{PYTHON} -m rightsizer_telemetry.generate --check",
            f"{PYTHON} -m rightsizer_cli.output.documents.generate --check",
            f"{PYTHON} scripts/draw_architecture.py --check",
            f"{PYTHON} scripts/draw_try.py --check",
            f"{PYTHON} scripts/draw_pictures.py --check",
        ),
        minutes=0.3,
    ),
    Suite(
        name="outputs",
        says="README.md and docs/ show what the commands print",
        commands=(f"{PYTHON} scripts/refresh_outputs.py --check",),
        minutes=0.5,
    ),
    Suite(
        name="docs",
        says="the documentation's site; a dead link ends it",
        commands=(f"{PYTHON} scripts/site.py",),
        minutes=0.2,
    ),
    Suite(
        name="collect",
        says="imports every test: compiles them for the suites that follow",
        commands=(f"{PYTEST} --collect-only tests | tail -n 1",),
        minutes=0.3,
    ),
    Suite(
        name="units",
        says="what starts no torchrun and no server; LAYER=operator for one layer",
        commands=(f'{PYTEST} -n 2 -m "not torchrun and not slow" --ignore tests/e2e {LAYER}',),
        minutes=1,
    ),
    Suite(
        name="processes",
        says="real torchrun on this machine, and what takes seconds; LAYER= for one layer",
        commands=(
            f"{PYTEST} -o cache_dir=.pytest_cache/processes -n 2 --dist loadfile --durations=15"
            f' -m "(torchrun or slow) and not kubernetes" {LAYER} || [ $? = 5 -a -n "${{LAYER:-}}" ]',
        ),
        needs=("torch",),
        minutes=4,
    ),
    Suite(
        name="binaries",
        says="the test cluster's programs, from pinned sources: minutes the first time",
        commands=KUBERNETES[2:],
        needs=("Go modules",),
        minutes=15,
    ),
    Suite(
        name="kubernetes",
        says="a real Kubernetes, started on this machine unless one runs",
        commands=(*KUBERNETES, f'{ON_KUBERNETES} -m "kubernetes and not nightly" tests/e2e'),
        needs=("root", "torch", "Go modules"),
        minutes=17,
        public=True,
    ),
    Suite(
        name="kubernetes-nightly",
        says="operators killed at every request, installations, upgrades",
        commands=(*KUBERNETES, f'{ON_KUBERNETES} -m "kubernetes and nightly" tests/e2e'),
        needs=("root", "torch", "Go modules"),
        minutes=40,
        public=True,
    ),
    Suite(
        name="slurm",
        says="a real Slurm, started on this machine unless one runs",
        commands=(*SLURM, f'{ON_SLURM} -m "slurm and not nightly" {SLURM_TESTS}'),
        needs=("root", "torch", "Debian"),
        minutes=9,
        public=True,
    ),
    Suite(
        name="slurm-nightly",
        says="preemption, forged rendezvous, killed monitors",
        commands=(*SLURM, f'{ON_SLURM} -m "slurm and nightly" {SLURM_TESTS}'),
        needs=("root", "torch", "Debian"),
        minutes=10,
        public=True,
    ),
    Suite(
        name="slurm-releases",
        says="sized and enforced jobs on Slurm 24.11 and 26.05, in chroots of Debian's packages",
        commands=(
            f"tests/e2e/slurm/chroot.sh trixie {SLURM_NEWER}",
            f"tests/e2e/slurm/chroot.sh forky {SLURM_NEWER}",
        ),
        needs=("root", "Debian"),
        minutes=3,
        public=True,
    ),
    Suite(
        name="slurm-image",
        says="launch.image on Slurm: our worker image, 6 GB, in Debian's Apptainer 1.4",
        commands=("tests/e2e/slurm/chroot.sh sid -n 1 tests/e2e/slurm_jobs/test_slurm_jobs_image.py",),
        needs=("root", "Debian", "15 GB of disk"),
        minutes=10,
        public=True,
    ),
    Suite(
        name="load",
        says="the Slurm daemon's memory under 60 requests: within bench/ranges.csv",
        commands=(
            "tests/e2e/slurm/install.sh",
            "mkdir -p build/bench",
            f"{PYTHON} -m bench.slurm_load --requests 60 --json build/bench/slurm_load.json",
            f"{PYTHON} -m bench.ranges slurm build/bench/slurm_load.json",
        ),
        needs=("root", "Debian"),
        minutes=1,
        public=True,
    ),
    Suite(
        name="load-nightly",
        says="the operator's launches, writes and memory, the Slurm daemon's memory: within bench/ranges.csv",
        commands=(
            "tests/e2e/slurm/install.sh",
            "mkdir -p build/bench",
            f"{PYTHON} -m bench.operator --nodes 80 --plans 140 --slow 10 --idle-s 10"
            " --json build/bench/operator.json",
            f"{PYTHON} -m bench.ranges operator build/bench/operator.json",
            f"{PYTHON} -m bench.slurm_load --requests 200 --json build/bench/slurm_load.json",
            f"{PYTHON} -m bench.ranges slurm build/bench/slurm_load.json",
        ),
        needs=("root", "Debian", "Go modules"),
        minutes=10,
        public=True,
    ),
    Suite(
        name="prometheus",
        says="rules, client, report and dashboards on a real Prometheus",
        commands=(
            "tests/e2e/prometheus/install.sh",
            f"{PYTEST} -o cache_dir=.pytest_cache/prometheus -m prometheus tests/e2e/prometheus",
        ),
        needs=("root, to install it",),
        minutes=3,
    ),
    Suite(
        name="release",
        says="all of a release but its upload; the newest packages of the mirror instead of the locked ones",
        commands=("make --no-print-directory release-dry-run RELEASE_OPTIONS=--newest",),
        needs=("Debian", "Go modules"),
        minutes=2,
    ),
    Suite(
        name="page",
        says="the what-if page and the documentation in a real browser",
        commands=("tests/e2e/page/install.sh", f"{PYTEST} -m page tests/e2e/page"),
        needs=("chromium", "root, to install it"),
        minutes=2,
    ),
    Suite(
        name="stack",
        says="the unmodified scripts of transformers: measured, killed, resumed, resized (CPU)",
        commands=(f'{PYTEST} -n 1 -m stacks -k "transformers and not one_line" tests/e2e/stacks',),
        needs=("torch",),
        minutes=3,
    ),
    Suite(
        name="stacks",
        says="the unmodified scripts of every stack; PYTEST_ADDOPTS='-k trl' for one",
        commands=(f"{PYTEST} -n 1 -m stacks tests/e2e/stacks",),
        needs=("torch",),
        minutes=20,
    ),
    Suite(
        name="install",
        says="each block of docs/install.md, literally, with what the release's dry run built",
        commands=(
            "make --no-print-directory release-dry-run",
            f"{PYTEST} -n 2 -m install tests/e2e/install",
        ),
        needs=("root", "Debian", "Go modules"),
        minutes=5,
    ),
    Suite(
        name="properties",
        says="the property tests with a thousand inputs, others each time; CI has the same few each time",
        commands=(
            f'{PYTEST} -n 2 -m "hypothesis and not torchrun and not slow"'
            " --hypothesis-profile=thorough --ignore tests/e2e tests",
        ),
        minutes=10,
    ),
    Suite(
        name="fuzz",
        says="a million random inputs for every parser of what tenants and users write (FUZZ=1000000)",
        commands=(f'{PYTHON} -m bench.fuzz --inputs "${{FUZZ:-1000000}}"',),
        minutes=10,
    ),
    Suite(
        name="mutants",
        says="changes one operator or number at a time and counts the changes that no unit test notices",
        commands=(f"{PYTHON} -m bench.mutants",),
        minutes=30,
    ),
    Suite(
        name="coverage",
        says="lines that no test without torchrun and clusters runs, file by file; LAYER= for one layer",
        commands=(
            ".venv/bin/coverage run --source sizing,crds,launch,telemetry,local,slurm,operator,cli,python"
            f' -m pytest -q -p no:xdist -m "not torchrun" --ignore tests/e2e {LAYER}',
            ".venv/bin/coverage combine --quiet",
            ".venv/bin/coverage report --skip-covered --show-missing",
        ),
        minutes=5,
    ),
    Suite(
        name="pictures",
        says="draws the dashboards and the usage page in a real Prometheus and Chromium, for docs/images",
        commands=(
            "tests/e2e/prometheus/install.sh",
            "tests/e2e/page/install.sh",
            f"{PYTHON} -m tests.e2e.prometheus.pictures docs/images",
            f"{PYTHON} -m tests.e2e.page.draw docs/images/what-if.png",
        ),
        needs=("chromium", "root, to install it"),
        minutes=2,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Suites that run one after the other, beside other series; the higher `nice`, the later its turn."""

    suites: tuple[str, ...]
    nice: int = 0


CHECK = tuple(Series(suites=(name,)) for name in ("outputs", "style", "types", "generated", "docs"))
QUICK = tuple(Series(suites=(name,)) for name in ("style", "types", "collect"))
"""What CI runs first: what they find needs no tests."""
CI = (
    # the longest: it waits for pods, so the others have most of the machine
    Series(suites=("kubernetes",)),
    Series(suites=("slurm", "slurm-releases", "load", "processes")),
    # a Prometheus gathers data for minutes: it begins early
    Series(suites=("prometheus", "release", "page", "stack")),
    # what needs neither a server nor torch, in what those leave of the machine
    Series(suites=("outputs", "generated", "docs", "units"), nice=10),
)
NIGHTLY = (
    Series(
        suites=(
            "install",
            "kubernetes-nightly",
            "slurm-nightly",
            "stacks",
            "slurm-image",
            "load-nightly",
            "properties",
            "fuzz",
        )
    ),
)
