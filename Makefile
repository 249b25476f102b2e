# All commands. `make demo` needs Rust; `make test` also python3, and installs its other tools.
.PHONY: demo fleet check test test-all lint advisories dist doc docs pictures bench loadtest fuzz planted

# Builds, makes 1,000,000 synthetic devices, publishes a snapshot into ./demo, serves it, prints
# requests to paste. Without optimization, which takes minutes: no measure of its speed.
demo:
	cargo build --package rtad --profile demo
	./target/demo/rtad demo

# Three rtad behind HAProxy on this machine, with a store of 1,000,000 synthetic devices. Prints
# requests and other commands to paste.
fleet:
	cargo build --release -p rtad -p rtad-loader
	bash tests/setup.sh fleet
	TEST_PROGRAMS=target/release PYTHONPATH=tests python3 -m suites.fleet.up

# Formatting, clippy, rustdoc and the Rust tests that start no server: needs no root and installs
# nothing.
check:
	python3 tests/run.py --check

# All tests except the long ones: a line for each suite, and the totals in the last one.
test:
	python3 tests/run.py

# The long tests too, on release builds: 20 million ids end to end, a Spark master with two
# workers, the image, a fleet at 20,000 requests per second.
test-all:
	python3 tests/run.py --long

# Faults that the simulation must find: each is planted in a copy, built and run.
planted:
	python3 tests/simulation/planted.py

# Formatting, layers and spelling. The builds of `make check` and `make test` lint the code and check
# its documentation.
lint:
	bash tests/setup.sh lint
	.venv/bin/typos
	python3 tests/layers.py --self-test
	python3 tests/layers.py
	cargo fmt --all --check

# Licenses and sources of dependencies, known vulnerabilities and withdrawn versions. The latter two
# need the database of RustSec.
advisories:
	bash tests/setup.sh deny
	target/tools/bin/cargo-deny --workspace check bans licenses sources
	@if target/tools/bin/cargo-deny fetch db; then \
		target/tools/bin/cargo-deny --workspace check advisories; \
	else \
		echo "advisories: not checked: github.com/rustsec/advisory-db is out of reach" >&2; exit 1; \
	fi

# What a release ships, in target/dist: packages, image, debug symbols, licenses, SBOMs. Needs root.
dist:
	bash packaging/dist.sh

doc:
	cargo doc --workspace --no-deps --open

# The documentation in English and Chinese, into target/site. A dead link fails.
docs:
	bash tests/setup.sh docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python3 -m mkdocs build
	@echo "target/site/index.html"

# The pictures of the console in docs/img, from a running pod, and its page in all
# widths and both themes in target/pictures: takes ten minutes.
pictures:
	cargo build --workspace --bins
	bash tests/setup.sh test screenshots
	PYTHONPATH=tests .venv/bin/python3 -m suites.console.screenshots docs/img target/pictures

# The tables of docs/explanation/performance.md: filters and decisions at 1.5 billion keys, loading at
# 1.3 billion. Takes about half an hour, 9 GB of memory and 29 GB of disk in TMPDIR.
bench:
	cargo bench --bench filter
	cargo bench --bench decision
	cargo bench --bench adapters
	bash tests/setup.sh
	PYTHONPATH=tests .venv/bin/python3 -m suites.testkit.s3 cargo bench --bench sync
	cargo bench -p rtad-loader --bench build

# Load test with wrk and k6 on this machine: about two minutes. LOADTEST=--quick takes about 40
# seconds; LOADTEST may hold any options of the script.
loadtest:
	bash loadtest/run.sh $(LOADTEST)

# Fuzzes every decoder and reader for a minute each; FUZZ_SECONDS=600 for longer. Builds for some
# minutes first.
fuzz:
	bash fuzz/run.sh $(or $(FUZZ_SECONDS),60)
