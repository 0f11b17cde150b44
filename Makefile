# firmbound: two commands do everything (`make run`, `make test`); the rest is for developers.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := uv==0.13.7
# Tests: two workers take file by file, a thread each, for more threads than cores are in each other's way.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
ONE_THREAD := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1

# One local home for Prefect and MLflow, so that nothing is written outside the project.
export PREFECT_HOME := $(CURDIR)/.prefect
export PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS := 180
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := 1
# Prefect and MLflow take seconds to compile: let Python keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run serve study tune doctor audit test test-fast lint types format benchmark clean

help:           ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## make .venv/ with everything in it

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "firmbound: making the environment in $(VENV)/ (about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check $(UV)
	@UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" $(BIN)/uv pip install -q --python $(BIN)/python -e '.[dev]' -c constraints.txt
	@touch $@

run: setup      ## run the pipeline (dvc repro), then say where report, metrics and model are
	@$(BIN)/python -m flows.pipeline

serve: setup    ## scheduled runs: Prefect's and MLflow's pages and the pipeline by cron (params.yaml), until Ctrl-C
	@exec $(BIN)/python -m flows.serve

study: setup    ## rivals on the same data, repeated: table, tests and a page in data/study (resumes where it was stopped)
	@$(BIN)/python -m flows.pipeline study

tune: setup     ## search options of a data set's network: make tune dataset=gauss2 [trials=20]
	@$(BIN)/python -m flows.tuning $(dataset) $(trials)

doctor:         ## say what is missing on this machine and what to do about it; changes nothing
	@if test -x $(BIN)/python; then $(BIN)/python -B -m flows.doctor; else $(PYTHON) -B -m flows.doctor; fi

audit: setup    ## look the pinned packages up among known vulnerabilities (needs the network)
	@$(BIN)/python -m flows.audit

test: setup     ## all tests
	@$(BIN)/python -m tests.browser.chromium
	@$(ONE_THREAD) $(BIN)/python -m pytest $(WORKERS)

test-fast: setup ## tests that start no server and no pipeline
	@$(BIN)/python -m tests.browser.chromium
	@$(ONE_THREAD) $(BIN)/python -m pytest $(WORKERS) -m 'not pipeline'

lint: setup     ## style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup    ## types
	@$(BIN)/mypy

format: setup   ## rewrite the code in house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

benchmark: setup ## measure the bars again (many hours)
	@$(BIN)/python -m benchmarks.excess_risk
	@$(BIN)/python -m benchmarks.solver_speed
	@$(BIN)/python -m benchmarks.front
	@$(BIN)/python -m benchmarks.front gp
	@$(BIN)/python -m benchmarks.latency
	@$(BIN)/python -m benchmarks.many_classes
	@$(BIN)/python -m benchmarks.many_classes gp
	@$(BIN)/python -m benchmarks.ranked
	@$(BIN)/python -m benchmarks.convex_options
	@$(BIN)/python -m benchmarks.process_speed
	@$(BIN)/python -m benchmarks.process_options
	@$(BIN)/python -m benchmarks.tandem_quality
	@$(BIN)/python -m benchmarks.tandem_order
	@$(BIN)/python -m benchmarks.tandem_speed
	@$(BIN)/python -m benchmarks.tandem_memory
	@$(BIN)/python -m benchmarks.streams
	@$(BIN)/python -m benchmarks.classifier
	@$(BIN)/python -m benchmarks.feature_writing
	@$(BIN)/python -m benchmarks.video_features
	@$(BIN)/python -m benchmarks.refinement
	@$(BIN)/python -m benchmarks.refinement_kinds
	@$(BIN)/python -m benchmarks.study
	@$(BIN)/python -m benchmarks.paper_sizes
	@$(BIN)/python -m benchmarks.calimera_reading
	@$(BIN)/python -m benchmarks.real_settings
	@$(BIN)/python -m benchmarks.real_data
	@$(BIN)/python -m benchmarks.sampling_cost
	@$(BIN)/python -m benchmarks.oracle_refinement
	@$(BIN)/python -m benchmarks.report_page
	@$(BIN)/python -m benchmarks.served_runs
	@$(BIN)/python -m benchmarks.prefect_overhead
	@$(BIN)/python -m benchmarks.dask_scaling
	@$(BIN)/python -m benchmarks.random_kills
	@$(BIN)/python -m benchmarks.pipeline_times

clean:          ## remove results and the environment, keep code and the DVC cache
	rm -rf data/*/ $(VENV) .prefect .logs mlflow.db mlartifacts
