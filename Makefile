# Everything starts from here: Python 3.11 or later and make are all you need.
#     make explore      install what is missing, open the dashboards in the browser
#     make test         install what is missing, run the tests and notebooks
# Set PYTHON=/path/to/python3 to choose the interpreter, ARGS="..." to pass options on.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install explore test test-extras notebooks student course dates slides paper docs lint format bench soak lock clean

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
ARGS ?=
LATER ?=

# The environment is made here and has its bytecode beside it; without, each of hundreds of programs would compile it.
unexport PYTHONDONTWRITEBYTECODE

# Looked for only when an environment has to be made. A name may stand for an interpreter that is
# missing or too old (shims do), so each one is asked.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)

NOTEBOOKS = $(wildcard modules/*.ipynb labs/*/*.ipynb)
NBVAL = $(if $(NOTEBOOKS),--nbval --nbval-sanitize-with=tests/notebooks/sanitize.cfg)

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

install: $(READY) ## set up .venv with exactly the packages of requirements.lock

# The stamp comes last, so an installation that was cut short is taken up again.
$(READY): requirements.lock pyproject.toml
	@rm -f $@
	@test -n "$(PYTHON)" || { \
	    echo "lib_dlhpc needs Python 3.11 or later with venv, and found none on the PATH."; \
	    echo "Install one (on Debian and Ubuntu: apt install python3 python3-venv), or name it:"; \
	    echo "    make $(or $(MAKECMDGOALS),explore) PYTHON=/path/to/python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "$(PYTHON) is older than 3.11, or cannot be run. Choose another: make PYTHON=..."; \
	        exit 1; }; \
	    echo "Making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@# The lock has all that is needed; pip 23 would look for newer packages with extras beside the pinned ones.
	@echo "Installing the packages of requirements.lock (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	    -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --no-build-isolation --editable .
	@echo "Drawing the pages (half a minute, once)"
	@$(BIN)/python -m lib_dlhpc.explore.blocks.built && $(BIN)/python -m lib_dlhpc.explore.front.page >/dev/null
	@touch $@

explore: $(READY) ## open the dashboards in the browser (ARGS=--no-browser prints the address)
	$(BIN)/dlhpc explore $(ARGS)

# Three workers on two cores: ranks, browsers and servers wait for each other an eighth of the time.
# What runs by default is a setting, so that pytest itself tells paths in ARGS, which replace it, from options.
test: $(READY) ## run the tests and notebooks, but for the longest tests, which make soak runs (ARGS=tests/spec: only these; ARGS="-k NAME": of all)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(NBVAL) -o "testpaths=tests $(NOTEBOOKS)" $(ARGS)

# What other tools count for the models that are imported from them. They are large, so they live apart.
test-extras: .venv-extras/.ready ## run the tests beside PyTorch, JAX, transformers, ONNX, Dask and python-pptx
	.venv-extras/bin/python -m pytest -q tests/extras $(ARGS)

.venv-extras/.ready: requirements-extras.lock pyproject.toml
	@test -n "$(PYTHON)"
	@$(PYTHON) -m venv .venv-extras
	@.venv-extras/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements-extras.lock
	@.venv-extras/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

notebooks: $(READY) ## execute the modules anew and store their outputs (needs Chromium)
	$(BIN)/python modules/store.py $(ARGS)

LABS = $(sort $(notdir $(wildcard labs/[0-9]*)))
UNKNOWN = $(filter-out $(LABS),$(LATER))

# Tests hold solutions as well. A copy of the last commit, without history: what is not committed is not in it.
student: ## build/student.tar.gz, the hand-out: no instructor_notes, tests or history (LATER="02_overlap" leaves labs out)
	$(if $(UNKNOWN),$(error LATER: there is no lab $(UNKNOWN), only $(LABS)))
	@test -n "$(PYTHON)"
	@mkdir -p build
	git archive --format=tar --prefix=lib_dlhpc/ HEAD -- . ':(exclude)instructor_notes' ':(exclude)tests' \
	    ':(exclude).ci' $(foreach lab,$(LATER),':(exclude)labs/$(lab)') \
	    | $(PYTHON) instructor_notes/hand_out.py build/student.tar.gz $(LATER)
	@echo "build/student.tar.gz"

# Sphinx and pdoc are not in the lock, so they live apart.
docs: .venv-docs/.ready ## write the site, ready to upload, to build/docs: front page, modules to read, slides, guide, reference
	.venv-docs/bin/python docs/build.py $(or $(ARGS),build/docs)

.venv-docs/.ready: pyproject.toml
	@test -n "$(PYTHON)"
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --editable '.[all,docs]'
	@touch $@

course: $(READY) ## write exams and problems, answers apart, to build/course (ARGS="FOLDER SEED")
	$(BIN)/python instructor_notes/build.py $(ARGS)

# The standard library is enough.
dates: ## put dates to a syllabus, in build/dates: a page, a calendar, a table (ARGS="14 2027-01-11 --off 2027-03-15")
	@test -n "$(PYTHON)"
	@$(PYTHON) instructor_notes/dates.py $(ARGS)

# Only slides need python-pptx, so it lives apart.
slides: .venv-slides/.ready ## write slides of each module and lab with speaker notes, as PowerPoint and HTML, to build/slides (ARGS="FOLDER 02 03")
	.venv-slides/bin/python instructor_notes/slides.py $(or $(ARGS),build/slides)

.venv-slides/.ready: pyproject.toml
	@test -n "$(PYTHON)"
	@$(PYTHON) -m venv .venv-slides
	@.venv-slides/bin/python -m pip install --quiet --editable '.[all,slides]'
	@touch $@

paper: $(READY) ## write a paper about the project, with the library's numbers and figures, to build/paper
	$(BIN)/python docs/paper/build.py $(ARGS)

lint: $(READY) ## check style, types and which room imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers have needs of their own, so they live apart from the locked environment.
bench: .venv-bench/.ready ## measure speed and accuracy beside a named peer
	@ls benchmarks/*.py >/dev/null
	status=0; for file in benchmarks/[!_]*.py; do \
	    echo "== $$file"; .venv-bench/bin/python $$file $(ARGS) || status=1; done; exit $$status

.venv-bench/.ready: pyproject.toml
	@test -n "$(PYTHON)"
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --editable '.[all,bench]'
	@touch $@

soak: $(READY) ## the longest tests; then thirty visitors, long pages, many runs: what is left? (an hour; ARGS="--minutes 1")
	$(if $(ARGS),,$(BIN)/python -m pytest -n 2 --dist loadfile -m soak tests)
	$(BIN)/python tests/soak/soak.py $(ARGS)

# Versions stay as they are unless pyproject.toml asks for others; ARGS=--upgrade renews them all.
lock: ## remake both locks (ARGS=--upgrade takes the newest versions)
	@test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock && \
	    .venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv; }
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 \
	    --fork-strategy fewest --generate-hashes --no-header --extra all --extra test $(ARGS) \
	    --output-file requirements.lock pyproject.toml
	.venv-lock/bin/uv pip compile --no-config --quiet --universal --python-version 3.11 \
	    --fork-strategy fewest --generate-hashes --no-header --extra all --extra crate --extra hub --extra import --extra jax --extra scale --extra slides --extra test $(ARGS) \
	    --output-file requirements-extras.lock pyproject.toml

clean: ## remove the environments and every cache
	rm -rf $(VENV) .venv-bench .venv-docs .venv-slides .venv-extras .venv-lock build dist *.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find lib_dlhpc tests modules labs benchmarks -name __pycache__ -type d -prune \
	    -exec rm -rf {} + 2>/dev/null || true
