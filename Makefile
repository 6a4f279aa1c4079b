# Each target does all the set-up that it needs: own virtual environment, install, run.
VENV ?= .venv
PYTHON ?= python3
# The CPU build of torch. With GPUs: make CONSTRAINTS= sim
CONSTRAINTS ?= -c constraints-cpu.txt
BIN := $(VENV)/bin

.PHONY: sim test lint setup clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(CONSTRAINTS) --editable '.[dev]'
	touch $@

sim: setup
	$(BIN)/entr-lab sim --staleness 30

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy entr_lab

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
