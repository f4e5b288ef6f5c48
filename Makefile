# The two commands of the README are `make quickstart` and `make test`; both do all the set-up they need.
SEED ?= 0
T1 = .venv/bin/t1
PYTEST = OMP_NUM_THREADS=1 .venv/bin/python -m pytest

.PHONY: setup quickstart test test-slow gpu-test figures lint clean

setup:
	@./setup.sh

quickstart: setup
	@$(T1) prepare quickstart
	@$(T1) notebook papermill/quickstart.yaml --set seed=$(SEED)

test: setup
	@$(PYTEST) -m "not slow and not gpu and not gpu2"

test-slow: setup
	@$(PYTEST) -m "slow and not gpu and not gpu2"

gpu-test: setup
	@$(PYTEST) -m "gpu or gpu2"

figures: setup
	@OMP_NUM_THREADS=1 $(T1) figures

lint: setup
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports

clean:
	rm -rf .pytest_cache .ruff_cache build *.egg-info
