# Unit and integration tests of the crates (cargo), formatting and lints.
. tests/lib/need.sh
# Keys and certificates of some tests are made with it.
why=$(need openssl) || echo "note: $why"
if cargo fmt --all --check >/dev/null 2>&1; then echo "ok unit/format"; else echo "FAIL unit/format: run cargo fmt --all"; fi
if cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; then echo "ok unit/clippy"; else echo "FAIL unit/clippy: see the warnings above"; fi
# The simulation needs a clock that stands still, which would be compiled into everything: see faults.sh.
tests=(cargo test --workspace --exclude layers --exclude kv-sim --locked --quiet)
"${tests[@]}" --no-run
# Built, they take three minutes. A test that waits forever is named by the line "has been running for over 60 seconds".
timeout 1500 "${tests[@]}" --no-fail-fast 2>&1
status=$?
if [ "$status" -eq 124 ]; then echo "FAIL unit/tests: not done within 25 minutes; see the last test that is running above"; fi
exit "$status"
