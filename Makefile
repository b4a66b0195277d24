# SPDX-License-Identifier: Apache-2.0
#
# Builds, tests and shows stageprof; `make help` lists the targets. Each target
# installs (as root, on Debian and Ubuntu) or builds what it lacks, and says so.

PYTHON ?= python3
TORCH ?= 2.6.0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)

export PYTHON TORCH
# go-nvml binds all of NVML, its deprecated functions too.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

GO_FILES = $(shell git ls-files '*.go')
NEED = @scripts/need.sh

.PHONY: all
all: stageprof sim marker python ## build everything: bin/stageprof and build/ (default)

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'variables: PYTHON=python3 TORCH=2.6.0 (for *-torch) VARIANTS=amd64 (for dist) CGO_ENABLED=0 (without NVML) TESTFLAGS='

.PHONY: stageprof
stageprof: ## bin/stageprof
	$(NEED) go $(if $(filter 0,$(CGO_ENABLED)),,gcc)
	go build -ldflags '-X main.version=$(VERSION)' -o bin/stageprof ./cmd/stageprof

.PHONY: sim
sim: ## the simulated driver, NVML and test programs: build/sim
	$(NEED) gcc python
	@$(MAKE) --no-print-directory -C sim

.PHONY: marker
marker: ## the C marker library: build/libstageprof.so
	$(NEED) gcc
	@$(MAKE) --no-print-directory -C marker

.PHONY: python
python: ## the Python marker package, in place: build/python
	$(NEED) gcc python python-headers
	@$(MAKE) --no-print-directory -C marker python PYTHON=$(PYTHON)

.PHONY: demo
demo: all ## attach to the simulated training pipeline; writes stageprof.pb.gz
	@scripts/demo.sh

.PHONY: demo-torch
demo-torch: all ## the same with stock PyTorch (a 3 GB download, kept)
	@scripts/demo.sh torch

.PHONY: test
test: all ## every test that needs no PyTorch and no browser (as root: they load eBPF)
	$(NEED) g++ clang unshare tmux
	@scripts/test.sh

.PHONY: test-long
test-long: all ## the pipeline and a page that watches it, for ten minutes each (LONG=10m); hostile targets in full size
	STAGEPROF_LONG=$(or $(LONG),10m) STAGEPROF_PATIENCE=30m go test -count=1 -timeout 0 -v ./agent ./cmd/stageprof \
		-run '^(TestPipelineTimes|TestServeSoak|TestHostileForgedMarkers|TestHostileThreadIDsUsedAgain|TestFamilyOfManyWorkers)$$'

.PHONY: test-soak
test-soak: all ## serve beside a training that is started again and again: flat memory, exact counts (SOAK=30m)
	STAGEPROF_SOAK=$(or $(SOAK),30m) go test -count=1 -timeout 0 -v ./cmd/stageprof -run '^TestServeSoakTraining$$'

.PHONY: test-browser
test-browser: ## the HTML pages in a headless Chromium (a 64 MB package)
	$(NEED) go browser
	go test -count=1 -tags browser ./report/html ./serve

.PHONY: test-timeline
test-timeline: all ## the traces of `timeline`, read with Perfetto's own definitions
	@scripts/test-timeline.sh

.PHONY: test-receivers
test-receivers: all ## profiles sent to a real OpenTelemetry Collector (400 MB of modules, kept by Go)
	$(NEED) go
	@scripts/test-receivers.sh

.PHONY: test-torch
test-torch: all ## attach to stock PyTorch and compare with the driver's truth
	@scripts/test-torch.sh

.PHONY: test-pythons
test-pythons: all ## the tests of Python on more interpreters (a 470 MB download and two builds, kept)
	$(NEED) g++ clang
	@scripts/test-pythons.sh

.PHONY: test-kernels
test-kernels: all ## the end-to-end tests on other kernels, emulated; KERNELS='6.1 arm64/6.12'
	$(NEED) qemu qemu-arm busybox cpio aarch64-linux-gnu-gcc
	@scripts/kernels/run.sh $(KERNELS)

.PHONY: dist
dist: ## what a release consists of, for amd64 and arm64: build/dist
	$(NEED) go git
	@scripts/dist.sh

.PHONY: test-dist
test-dist: all ## a release for this machine: the same bytes twice, and they work
	$(NEED) go git
	@scripts/test-dist.sh

.PHONY: fuzz-short
fuzz-short: sim marker ## every fuzz target for some seconds, ten minutes in all; FUZZ=regexp chooses
	$(NEED) go gcc git
	@scripts/fuzz.sh 15s

.PHONY: lint
lint: ## formatting and static checks of Go, C, shell and Python
	$(NEED) go gcc clang-format shellcheck python git
	@scripts/lint.sh

.PHONY: generate
generate: ## bpf2go: the BPF objects and their Go code, both committed
	$(NEED) go clang llvm libbpf-headers
	go generate ./bpf ./agent/calibrate

.PHONY: bench
bench: all ## what a probed call costs: unprobed, stageprof, bpftrace
	$(NEED) bpftrace
	@scripts/bench.sh sim

.PHONY: bench-real
bench-real: all ## the same on the real libcuda (a 3 MB download into build/)
	$(NEED) bpftrace
	@scripts/bench.sh real

.PHONY: bench-peers
bench-peers: all ## other tools on the same pipeline: what they cost it, and say of it
	$(NEED) bpftrace
	@scripts/bench.sh peers

.PHONY: bench-hostile
bench-hostile: all ## hostile targets: the times of their loops, with and without stageprof
	@scripts/bench.sh hostile

.PHONY: bench-scale
bench-scale: all ## targets of more threads, stages and time: the agent's memory and CPU
	@scripts/bench.sh scale

.PHONY: bench-ways
bench-ways: ## what else kernels offer to time a call, against what is used
	$(NEED) go
	@go test ./agent/calibrate -run '^$$' -bench '^BenchmarkWays$$' -benchtime 30s

.PHONY: format
format: ## rewrite Go and C in the project's format
	$(NEED) go clang-format
	gofmt -w $(GO_FILES)
	git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format -i

.PHONY: clean
clean: ## remove what was built; downloads in the cache folder stay
	rm -rf bin build
