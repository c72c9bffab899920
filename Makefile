# Weirgate: every command a person needs. What has to be installed is installed by those that need it: little for `run`, `build`
# and `install`, which are for production hosts too.
# The target directory is shared by all checkouts on a machine, so that a fresh clone does not build the world again.
SHELL := /bin/bash
export CARGO_TARGET_DIR ?= $(HOME)/.cache/weirgate/target
TOOLS := $(HOME)/.cache/weirgate/tools
export PATH := $(TOOLS)/bin:$(PATH):$(HOME)/.cargo/bin
WEIRGATE := $(CARGO_TARGET_DIR)/release/weirgate
LIBZ := $(CARGO_TARGET_DIR)/release/libweirgate_z.so
SERVICES := $(HOME)/.cache/weirgate/services
FUZZ_SECONDS ?= 10
# Beside the release's libraries; what it leaves where the release binary is, RELEASED takes back.
CHECKED := --release --config .cargo/checked.toml
RELEASED := cargo build --release --locked --quiet
# Clippy in the compiler's place, for our own crates: what is linted is what is tested. `cargo clippy` would look at all of them, and at what
# their tests need, once more.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
# zlib-rs as a libz, which an experiment measures beside ours.
RIVAL := $(CARGO_TARGET_DIR)/libz/release/libweirgate_rival.so
EXPERIMENTS := links sockets-scale edge limit-cascade limit-udp limit-fair limit-precision limit-rtt limit-vm limit-10g limit-peer gzip accelerator multipath fleet
FIGURES = $(shell $(WEIRGATE) fabric figure list | awk 'NR > 1 { print $$1 }')

.PHONY: help setup setup-build setup-services setup-hdl setup-rivals web build install run demo test test-rust test-loom test-web test-fuzz test-libz test-fabric test-hdl hdl test-lab services services-stop bench check prove figures clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: setup-build ## install all that tests and experiments need as well: servers, QEMU, Open vSwitch, Chromium, cargo-fuzz
	@scripts/setup.sh "$(TOOLS)" all

setup-build:
	@scripts/setup.sh "$(TOOLS)" build

setup-services:
	@scripts/setup.sh "$(TOOLS)" services

setup-hdl:
	@scripts/setup.sh "$(TOOLS)" hdl

setup-rivals:
	@scripts/setup.sh "$(TOOLS)" rivals

web: web/dist/index.html ## build the dashboard's page into web/dist

# Only where it is older than what it is made of: the binary holds it, and would be compiled again.
web/dist/index.html: $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -path web/test -prune -o -type f -print) | setup-build
	@cd web && npm run --silent build
	@touch $@

build: web ## build the release binary, and the libz that nginx and others can load
	cargo build --release --locked
	scripts/libz.sh $(LIBZ)

run: build ## build, and run the daemon: observe this host, dashboard on http://127.0.0.1:7070
	$(WEIRGATE) run

install: build ## as root: binary, systemd unit, manual, completions below $(DESTDIR)/usr; then `systemctl enable --now weirgate`
	install -Dm755 $(WEIRGATE) $(DESTDIR)/usr/bin/weirgate
	install -Dm755 $(LIBZ) $(DESTDIR)/usr/lib/weirgate/libweirgate_z.so
	install -Dm644 packaging/weirgate.service $(DESTDIR)/usr/lib/systemd/system/weirgate.service
	install -Dm644 packaging/weirgate-accelerator.service $(DESTDIR)/usr/lib/systemd/system/weirgate-accelerator.service
	install -Dm644 packaging/weirgate-controller.service $(DESTDIR)/usr/lib/systemd/system/weirgate-controller.service
	install -Dm644 weirgate.example.toml $(DESTDIR)/usr/share/doc/weirgate/weirgate.example.toml
	install -d $(DESTDIR)/usr/share/man/man1 $(DESTDIR)/usr/share/bash-completion/completions
	$(WEIRGATE) man >$(DESTDIR)/usr/share/man/man1/weirgate.1
	$(WEIRGATE) completions bash >$(DESTDIR)/usr/share/bash-completion/completions/weirgate

demo: setup build ## CUBIC and Weirgate side by side on 20 emulated client networks, under 4 minutes
	$(WEIRGATE) lab run edge --demo

test: setup build test-rust test-loom test-web test-fuzz test-libz test-fabric test-hdl test-lab ## all tests, every experiment's quick form included (bench-shape, bench-spray, bench-switch, fabric-speed: make bench), and six figures'

test-rust: setup build
	set -o pipefail; $(LINTED) cargo test --workspace --locked $(CHECKED) -- --show-output | awk -f scripts/skipped.awk; status=$$?; $(RELEASED); exit $$status

test-web: setup build
	cd web && WEIRGATE=$(WEIRGATE) LIBZ=$(LIBZ) npm test --silent

# A library of its own below the shared ones: the flag would build everything else again.
test-loom: setup
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom cargo test --locked --release -p weirgate-shape -p weirgate-deflate --test loom

test-fuzz: setup
	scripts/fuzz.sh $(FUZZ_SECONDS)

# zlib's own programs, and real ones that use it.
test-libz: setup build
	libz/tests/run.sh $(LIBZ)

# The simulator from its command, as a user has it: theory, and a figure of each kind.
test-fabric: build
	$(WEIRGATE) fabric verify --quick
	$(WEIRGATE) fabric figure fig3 fig6 engines fig11a fig12 table1 --quick

# Just as `hdl`, and what it measures has to be what is kept.
test-hdl: setup-hdl build
	hdl/run.py $(WEIRGATE)

hdl: setup-hdl build ## DRILL in Verilog against balance in two simulators, proofs, area and longest path; writes docs/results and docs/hardware.md
	hdl/run.py $(WEIRGATE) --keep

$(RIVAL): setup-build
	cd libz/rival && cargo build --release --locked --target-dir $(CARGO_TARGET_DIR)/libz

test-lab: setup build $(RIVAL)
	scripts/smoke.sh $(WEIRGATE) $(EXPERIMENTS)

bench: setup build ## benchmarks: limits and simulated fabrics beside their rivals, encode, ledger
	scripts/bench.sh $(WEIRGATE)

services: setup-services ## start real Kafka and ClickHouse (25.8 and Debian's) on loopback for trying the fleet parts; where they listen is printed
	@scripts/services.sh start $(SERVICES) || [ $$? = 77 ]

services-stop: ## stop them; their data stays
	@scripts/services.sh stop $(SERVICES)

check: setup web ## formatting, lints, documentation, licences and sources of dependencies, the walls
	cargo fmt --all --check
	cd libz && cargo fmt --check
	$(LINTED) cargo test --workspace --all-targets --no-run --locked $(CHECKED)
	cargo clippy -p weirgate-linux --no-default-features --locked $(CHECKED) -- -D warnings
	cd libz && cargo clippy --release --locked --target-dir $(CARGO_TARGET_DIR)/libz -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet $(CHECKED)
	scripts/figures.py --check
	cargo deny --all-features check --hide-inclusion-graph bans licenses sources
	$(LINTED) cargo test --workspace --locked $(CHECKED) --test walls; status=$$?; $(RELEASED); exit $$status

prove: setup setup-rivals build $(RIVAL) ## the experiments in full; their dated results go to docs/results
	scripts/prove.sh $(WEIRGATE) "lab run" $(EXPERIMENTS) bench-shape bench-spray bench-switch fabric-speed

figures: build ## the figures of the DRILL article in full, some hours on two cores (their short forms: weirgate fabric figure all --quick)
	scripts/prove.sh $(WEIRGATE) "fabric figure" $(FIGURES)
	scripts/figures.py

clean: ## remove what was built here (the shared target directory stays)
	rm -rf web/dist web/node_modules lab-out
