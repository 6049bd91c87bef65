# Everything runs in .venv, which make builds itself from requirements.lock. Needs: python3 >= 3.11 and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Where `make fit` and `make bench` find the reference tables, not part of the repo, or from where they download them
export RIGHTSIZER_REFERENCE_URL ?=
export RIGHTSIZER_REFERENCE ?= $(abspath ../shared/reference)
# numpy's threads fight with pytest's workers on small machines
export OMP_NUM_THREADS ?= 1
# Without bytecode each pytest process compiles the tests and hypothesis anew: 4 s of processor time
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := all
.PHONY: all venv demo test check generate docs ci nightly suite bench fit lock images release-dry-run clean help

all: check test  ## check and test

venv: $(READY)  ## build .venv with the command .venv/bin/rightsizer

$(READY): pyproject.toml requirements.lock scripts/bootstrap.sh
	PYTHON=$(PYTHON) scripts/bootstrap.sh $(VENV)
	@touch $@

demo: $(READY)  ## size, train with two workers, kill one, resume, resize 2 -> 1, report (about 2 minutes)
	$(BIN)/python examples/01-local/demo.py

# What it runs is a table: scripts/suites.py
RUN := $(BIN)/python scripts/ci.py

# One layer: make test LAYER=operator (a folder of tests/, or a path in it)
test: $(READY)  ## unit tests, then real torchrun on this machine; no root, no cluster; LAYER=operator for one layer
	@$(RUN) run units processes

check: $(READY)  ## format, lint, types, layer contracts, generated files, documentation
	@$(RUN) check

ci: $(READY)  ## what .ci/run calls: all but what `make nightly` runs; the real Prometheus, Slurm and Kubernetes too
	@$(RUN) ci

nightly: $(READY)  ## what CI does not wait for: operators killed at every request, installations, upgrades, random inputs
	@$(RUN) nightly

suite: $(READY)  ## one or more suites: make suite SUITE="slurm page"; without SUITE: the list of them
	@$(RUN) $(if $(SUITE),run $(SUITE),list)

generate: $(READY)  ## rewrite all that is generated: CRD, schemas, rules, dashboards, pictures, the outputs that docs show
	$(BIN)/python -m rightsizer_api.schema.generate
	$(BIN)/python -m rightsizer_telemetry.generate
	$(BIN)/python -m rightsizer_cli.output.documents.generate
	$(BIN)/python scripts/draw_architecture.py
	$(BIN)/python scripts/draw_try.py
	$(BIN)/python scripts/draw_pictures.py
	$(BIN)/python scripts/refresh_outputs.py

docs: $(READY)  ## the documentation as a site in build/site; a dead link ends it
	$(BIN)/python scripts/site.py

fit: $(READY)  ## refit the engine's parameters from the reference data
	$(BIN)/python -m bench.reference
	$(BIN)/python -m bench.fit.curves
	$(BIN)/python -m bench.fit.step_time
	$(BIN)/python -m bench.fit.memory
	$(BIN)/python -m bench.fit.uncertainty
	$(BIN)/python -m bench.assumed_stack --fit
	$(BIN)/python -m bench.end_to_end --fit
	$(BIN)/python -m bench.calibration --fit

bench: $(READY)  ## accuracy against published and whole runs, worth of calibration, speed, worth of resizing
	$(BIN)/python -m bench.reference
	$(BIN)/python -m bench.accuracy
	$(BIN)/python -m bench.end_to_end
	$(BIN)/python -m bench.calibration
	$(BIN)/python -m bench.speed
	$(BIN)/python -m bench.simulate
	$(BIN)/python -m bench.opening

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

clean:  ## remove what make and the tests built
	rm -rf $(VENV) .tools dist build runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## one line for each target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*##[[:space:]]*/\1\t/' | expand -t 18
