# Unit and integration tests of the crates (cargo), formatting and lints.
. tests/lib/need.sh
# Keys and certificates of some tests are made with it.
why=$(need openssl) || echo "note: $why"
if cargo fmt --all --check >/dev/null 2>&1; then echo "ok unit/format"; else echo "FAIL unit/format: run cargo fmt --all"; fi
if cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; then echo "ok unit/clippy"; else echo "FAIL unit/clippy: see the warnings above"; fi
# The simulation needs a clock that stands still, which would be compiled into everything: see faults.sh.
cargo test --workspace --exclude layers --exclude kv-sim --locked --quiet --no-fail-fast 2>&1
