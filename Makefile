# Everything runs in .venv, which make builds itself from requirements.lock. Needs: python3 >= 3.11 and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Where `make fit` and `make bench` find the reference data (published runs, microbenchmarks); not part of the repo.
export RIGHTSIZER_REFERENCE ?= $(abspath ../shared/reference)
# numpy's threads fight with pytest's workers on small machines
export OMP_NUM_THREADS ?= 1
# Without bytecode each pytest process compiles the tests and hypothesis anew: 4 s of processor time
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := all
.PHONY: all venv demo test coverage mutants fuzz check check-generated generate docs pictures outputs lock images release-dry-run test-install fit bench bench-load .bench-load-operator .bench-load-slurm cluster-up cluster-down test-kubernetes slurm-up slurm-down test-slurm test-slurm-releases test-slurm-image test-prometheus nightly .test-units .test-processes .test-kubernetes .test-slurm .test-slurm-releases .test-slurm-image ci .ci-built .ci-tests .copied .ci-kubernetes .ci-slurm .ci-waiting .ci-local .ci-alone .ci-load .collected test-page test-stacks clean help
.PHONY: .test-properties .check-outputs .check-style .check-types .check-generated

all: check test  ## check and test

venv: $(READY)  ## build .venv with the command .venv/bin/rightsizer

$(READY): pyproject.toml requirements.lock scripts/bootstrap.sh
	PYTHON=$(PYTHON) scripts/bootstrap.sh $(VENV)
	@touch $@

demo: $(READY)  ## size, train with two workers, kill one, resume, resize 2 -> 1, report (about 2 minutes)
	$(BIN)/python examples/01-local/demo.py

# One layer: make test LAYER=operator (a folder of tests/, or a path in it)
LAYER ?=
PACKAGES := sizing,crds,launch,telemetry,local,slurm,operator,cli,python
test: $(READY)  ## unit tests, then real torchrun on this machine; no root, no cluster; LAYER=operator for one layer
	@$(MAKE) --no-print-directory .test-units
	@$(MAKE) --no-print-directory .test-processes

.test-units: $(READY)
	$(BIN)/pytest -q -n 2 -m "not torchrun and not slow" --ignore tests/e2e tests/$(LAYER)

# Minutes; CI runs fewer inputs, and the same ones each time
.test-properties: $(READY)
	$(BIN)/pytest -q -n 2 -m "hypothesis and not torchrun and not slow" --hypothesis-profile=thorough --ignore tests/e2e tests

.test-processes: $(READY)
	$(BIN)/pytest -q $(call own,processes) -n 2 --dist loadfile --durations=15 -m "(torchrun or slow) and not kubernetes" tests/$(LAYER) \
	  || [ $$? = 5 -a -n "$(LAYER)" ]  # 5: it has none

coverage: $(READY)  ## lines that no test without torchrun and clusters runs, file by file; LAYER=operator for one layer
	$(BIN)/coverage run --source $(PACKAGES) -m pytest -q -p no:xdist -m "not torchrun" --ignore tests/e2e tests/$(LAYER)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

# Not part of CI: half an hour on two idle cores
mutants: $(READY)  ## change one operator or number at a time and count the changes that no unit test notices
	$(BIN)/python -m bench.mutants

# Part of `make nightly`; the unit tests run a hundred inputs for each parser
FUZZ ?= 1000000
fuzz: $(READY)  ## random inputs for every parser of what tenants and users write (FUZZ=1000000, the same each time)
	$(BIN)/python -m bench.fuzz --inputs $(FUZZ)

# Two at a time, unless a make above says how many; each prints its lines together once it is done
BESIDE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j 2) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
check: $(READY)  ## format, lint, types, layer contracts, generated files
	+@$(BESIDE) .check-outputs .check-style .check-types .check-generated docs

.check-style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

# A fresh checkout need not check the types of files that another one has checked
MYPY_CACHE := $(or $(RIGHTSIZER_CACHE),$(HOME)/.cache/rightsizer)/mypy
.check-types: $(READY)
	$(BIN)/mypy --cache-dir $(MYPY_CACHE)/packages
	cd tests/e2e/cluster && ../../../$(BIN)/mypy --cache-dir $(MYPY_CACHE)/cluster --strict --config-file= --explicit-package-bases *.py
	cd tests/e2e/slurm && ../../../$(BIN)/mypy --cache-dir $(MYPY_CACHE)/slurm --strict --config-file= --explicit-package-bases accounting.py cluster.py machines.py place.py settings.py

check-generated: $(READY)  ## generated files are what `make generate` and `make outputs` write
	+@$(BESIDE) .check-outputs .check-generated

.check-outputs: $(READY)
	$(BIN)/python scripts/refresh_outputs.py --check

.check-generated: $(READY)
	$(BIN)/python -m rightsizer_api.schema.generate --check
	$(BIN)/python -m rightsizer_telemetry.generate --check
	$(BIN)/python -m rightsizer_cli.commands.schema.generate --check
	$(BIN)/python scripts/draw_architecture.py --check
	$(BIN)/python scripts/draw_try.py --check
	$(BIN)/python scripts/draw_pictures.py --check

generate: $(READY)  ## rewrite the CRD, the schemas, the rules, the dashboards and the generated docs
	$(BIN)/python -m rightsizer_api.schema.generate
	$(BIN)/python -m rightsizer_telemetry.generate
	$(BIN)/python -m rightsizer_cli.commands.schema.generate
	$(BIN)/python scripts/draw_architecture.py
	$(BIN)/python scripts/draw_try.py
	$(BIN)/python scripts/draw_pictures.py

docs: $(READY)  ## the documentation as a site in build/site; a dead link ends it
	$(BIN)/python scripts/site.py

pictures: $(READY)  ## draw the dashboards and the usage page of a sample day in a real Prometheus and Chromium
	tests/e2e/prometheus/install.sh
	tests/e2e/page/install.sh
	$(BIN)/python -m tests.e2e.prometheus.pictures docs/images
	$(BIN)/python -m tests.e2e.page.draw docs/images/what-if.png

outputs: $(READY)  ## rewrite the outputs of commands that README.md and docs/ show, and their pictures
	$(BIN)/python scripts/refresh_outputs.py

STACK_LOCKS := tests/e2e/stacks/locks
STACKS := $(basename $(notdir $(wildcard $(STACK_LOCKS)/*.in)))
LOCK = .tools/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet
lock: $(READY)  ## pin what pyproject.toml asks for: the environment, the image, the image's build
	$(LOCK) pyproject.toml --extra dev --extra gpu --output-file requirements.lock
	$(LOCK) pyproject.toml --extra operator --constraint requirements.lock --output-file deploy/images/operator.lock
	$(LOCK) pyproject.toml --constraint requirements.lock --output-file deploy/release/plain.lock
	printf 'hatchling>=1.27\nhatch-vcs>=0.5\nsetuptools>=80\n' | $(LOCK) - --constraint requirements.lock --output-file deploy/images/build.lock
	sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.lock > .tools/torch.pin  # one build of torch for all stacks
	for stack in $(STACKS); do \
	  $(LOCK) pyproject.toml --extra examples $(STACK_LOCKS)/$$stack.in --constraint .tools/torch.pin --output-file $(STACK_LOCKS)/$$stack.lock; done
	$(BIN)/python -m deploy.images.build --lock

images: $(READY)  ## the operator's and the workers' images as OCI layouts in dist/images, with their SBOM
	$(BIN)/python -m deploy.images.build --out dist/images

# Its tools come as the test cluster's do: built once from pinned Go modules
RELEASE_TOOLS = tests/e2e/cluster/cluster.py
release-dry-run: $(READY)  ## all of a release but its upload, checked, in dist/release; TAG=v1.2.3 compares with a tag
	@$(BIN)/python $(RELEASE_TOOLS) build helm nfpm > /dev/null
	$(BIN)/python -m deploy.release.build --helm $$($(BIN)/python $(RELEASE_TOOLS) tool helm) \
	  --nfpm $$($(BIN)/python $(RELEASE_TOOLS) tool nfpm) --tag "$(TAG)" $(RELEASE_OPTIONS)

test-install: release-dry-run  ## each block of docs/install.md, literally, with what the dry run built; root for Slurm's blocks
	$(BIN)/pytest -q -n 2 -m install tests/e2e/install

fit: $(READY)  ## refit the engine's parameters from the reference data
	$(BIN)/python -m bench.fit.curves
	$(BIN)/python -m bench.fit.step_time
	$(BIN)/python -m bench.fit.memory
	$(BIN)/python -m bench.fit.uncertainty
	$(BIN)/python -m bench.assumed_stack --fit
	$(BIN)/python -m bench.end_to_end --fit
	$(BIN)/python -m bench.calibration --fit

bench: $(READY)  ## accuracy against published and whole runs, worth of calibration, speed, worth of resizing
	$(BIN)/python -m bench.accuracy
	$(BIN)/python -m bench.end_to_end
	$(BIN)/python -m bench.calibration
	$(BIN)/python -m bench.speed
	$(BIN)/python -m bench.simulate
	$(BIN)/python -m bench.opening

# Their ranges are the means of several runs and a fifth more: `python -m bench.ranges --help`
REQUESTS ?= 200
bench-load: $(READY)  ## the operator's launches, writes and memory, the Slurm daemon's memory: within bench/ranges.csv; root
	@tests/e2e/public.sh $(MAKE) --no-print-directory .bench-load-operator .bench-load-slurm

.bench-load-operator: $(READY)
	@mkdir -p build/bench
	$(BIN)/python -m bench.operator --nodes 80 --plans 140 --slow 10 --idle-s 10 --json build/bench/operator.json
	$(BIN)/python -m bench.ranges operator build/bench/operator.json

.bench-load-slurm: $(READY)
	tests/e2e/slurm/install.sh
	@mkdir -p build/bench
	$(BIN)/python -m bench.slurm_load --requests $(REQUESTS) --json build/bench/slurm_load.json
	$(BIN)/python -m bench.ranges slurm build/bench/slurm_load.json

# Suites that run side by side each have a cache
own = -o cache_dir=.pytest_cache/$1

cluster-up:  ## a real Kubernetes on this machine (needs root); prints `export KUBECONFIG=...`
	@$(MAKE) --no-print-directory -s $(READY) >&2
	@tests/e2e/cluster/install.sh >&2
	@$(BIN)/python tests/e2e/cluster/cluster.py up

cluster-down: $(READY)  ## end it, with nothing left
	$(BIN)/python tests/e2e/cluster/cluster.py down

test-kubernetes:  ## the tests on that Kubernetes; starts one if none runs
	@tests/e2e/public.sh $(MAKE) --no-print-directory .test-kubernetes

# What the tests start, from the pinned sources: minutes the first time
BUILD = $(BIN)/python tests/e2e/cluster/cluster.py build kubernetes etcd coredns helm kueue jobset trainer > /dev/null
.test-kubernetes: $(READY)
	tests/e2e/cluster/install.sh
	tests/e2e/prometheus/install.sh
	$(BUILD)
	$(BIN)/pytest -q $(call own,kubernetes) -m "kubernetes and $(if $(NIGHTLY),,not )nightly" -n 2 --dist loadgroup --no-loadscope-reorder --durations=15 tests/e2e

slurm-up:  ## a real Slurm on this machine, six nodes with pretended GPUs (needs root); prints `export ...` lines
	@$(MAKE) --no-print-directory -s $(READY) >&2
	@tests/e2e/slurm/install.sh >&2
	@$(BIN)/python tests/e2e/slurm/cluster.py up

slurm-down: $(READY)  ## end it, with nothing left
	$(BIN)/python tests/e2e/slurm/cluster.py down

test-slurm:  ## the tests on that Slurm; starts one if none runs
	@tests/e2e/public.sh $(MAKE) --no-print-directory .test-slurm

.test-slurm: $(READY)
	tests/e2e/slurm/install.sh
	tests/e2e/prometheus/install.sh
	$(BIN)/pytest -q $(call own,slurm) -m "slurm and $(if $(NIGHTLY),,not )nightly" -n 3 --dist loadfile --no-loadscope-reorder --durations=15 tests/e2e/loop tests/e2e/slurm_jobs tests/e2e/slurm

SLURM_NEWER := $(addprefix tests/e2e/slurm/,test_slurm_cluster.py \
  test_slurm_sizing.py::test_a_job_gets_the_size_on_the_terminal \
  test_slurm_sizing.py::test_less_time_takes_more_gpus \
  test_slurm_enforce.py::test_a_held_job_is_not_released_before_it_is_sized \
  test_slurm_enforce.py::test_a_refused_job_ends_with_its_reason_and_its_owner_cannot_run_it \
  test_slurm_enforce.py::test_no_fault_opens_an_enforced_partition_or_closes_another)
test-slurm-releases:  ## the cluster, sized and enforced jobs on Slurm 24.11 and 26.05, in chroots of Debian's packages
	@tests/e2e/public.sh $(MAKE) --no-print-directory .test-slurm-releases

test-slurm-image:  ## launch.image on Slurm: our worker image, 6 GB, in Debian's Apptainer 1.4
	@tests/e2e/public.sh $(MAKE) --no-print-directory .test-slurm-image

.test-slurm-image: $(READY)
	tests/e2e/slurm/chroot.sh sid -n 1 tests/e2e/slurm_jobs/test_slurm_jobs_image.py

.test-slurm-releases: $(READY)
	tests/e2e/slurm/chroot.sh trixie $(SLURM_NEWER)
	tests/e2e/slurm/chroot.sh forky $(SLURM_NEWER)

test-prometheus: $(READY)  ## rules, client, report and dashboards on a real Prometheus; root only to install it
	tests/e2e/prometheus/install.sh
	$(BIN)/pytest -q $(call own,prometheus) -m prometheus tests/e2e/prometheus

test-page: $(READY)  ## the what-if page and the documentation in a real browser; root only to install it
	tests/e2e/page/install.sh
	$(BIN)/pytest -q -m page tests/e2e/page

STACK ?=
test-stacks: $(READY)  ## unmodified scripts of real training stacks: measured, killed, resumed, resized (CPU); STACK=trl for one
	$(BIN)/pytest -q -n 1 -m stacks $(if $(STACK),-k "$(STACK)") tests/e2e/stacks

nightly:  ## what CI does not wait for: operators killed at every request, installations, upgrades, random inputs
	@$(MAKE) --no-print-directory test-install
	@$(MAKE) --no-print-directory test-kubernetes NIGHTLY=1
	@$(MAKE) --no-print-directory test-slurm NIGHTLY=1
	@$(MAKE) --no-print-directory test-stacks
	@$(MAKE) --no-print-directory test-slurm-image
	@$(MAKE) --no-print-directory bench-load
	@$(MAKE) --no-print-directory .test-properties
	@$(MAKE) --no-print-directory fuzz

# What comes later than that is only begun where it is short: CI ends what runs for 90 minutes
CI_MINUTES ?= 60
ci: $(READY)  ## what .ci/run calls: all but what `make nightly` runs; the real Prometheus, Slurm and Kubernetes too
	@RIGHTSIZER_UNTIL=$$(( $$(date +%s) + 60 * $(CI_MINUTES) )) $(MAKE) --no-print-directory -j 4 .ci-built .ci-tests

# Kubernetes, in what the tests leave of the machine: they wait more than they compute
.ci-built:
	-@nice -n 19 $(BUILD)

# The quick checks first: what they find needs no tests. The others come beside the tests
.ci-tests:
	@$(MAKE) --no-print-directory .check-style .check-types .collected
	@RIGHTSIZER_COPIED=$$(tests/e2e/public.sh $(MAKE) --no-print-directory -s .copied | tail -n 1) \
	  $(MAKE) --no-print-directory .ci-kubernetes .ci-slurm .ci-waiting .ci-local

# Compiles the tests, once for all of the suites
.collected: $(READY)
	@$(BIN)/pytest -q --collect-only tests | tail -n 1

# Where public.sh has copied the checkout to, its environment built: the last line
.copied: $(READY)
	@echo "$$RIGHTSIZER_COPIED"

# A series runs beside others, so the output of all but one comes when it ends: $(call told,NAME,COMMAND)
told = mkdir -p build; { $2; } > build/$1.log 2>&1; status=$$?; echo "== $1"; cat build/$1.log; exit $$status
# One suite after the other, to the end: each says what failed
series = failed=; for suite in $1; do echo "== $$suite"; $(MAKE) $$suite || failed="$$failed $$suite"; done; \
  [ -z "$$failed" ] || { echo "failed:$$failed"; false; }

# The longest series: it waits for pods, so the others have most of the machine
.ci-kubernetes:
	@$(call series,test-kubernetes)

.ci-slurm:
	+@$(call told,slurm,$(call series,test-slurm test-slurm-releases .ci-load .test-processes))

# A Prometheus gathers data for minutes: it begins early.
# The lock of the images' base may name packages that the mirror here has replaced.
# Of the stacks one, unmodified; the others: make nightly
.ci-waiting: export RELEASE_OPTIONS = --newest
.ci-waiting: export STACK = transformers and not one_line
.ci-waiting:
	+@$(call told,waiting,$(call series,test-prometheus release-dry-run test-page test-stacks))

# What needs neither a server nor torch, in what those leave of the machine
.ci-local:
	+@$(call told,local,nice -n 10 $(MAKE) --no-print-directory .ci-alone)

.ci-alone:
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory .test-units

.ci-load:
	@tests/e2e/public.sh $(MAKE) --no-print-directory .bench-load-slurm REQUESTS=60

clean:  ## remove what make and the tests built
	rm -rf $(VENV) .tools dist build runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## one line for each target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*##[[:space:]]*/\1\t/' | expand -t 18
