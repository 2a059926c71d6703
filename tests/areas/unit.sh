# Unit and integration tests of the crates (cargo), formatting and lints.
. tests/lib/need.sh
if [ "$LIST" = yes ]; then
  printf 'unit/format\nunit/clippy\n'
  list_cargo --workspace --exclude layers --exclude integration-tests --exclude kv-sim
  exit
fi
# Keys and certificates, and packets through a real kernel.
why=$(need openssl nftables iproute2 conntrack containernetworking-plugins) || echo "note: $why"
if ! wanted unit/format; then :
elif cargo fmt --all --check >/dev/null 2>&1; then echo "ok unit/format"; else echo "FAIL unit/format: run cargo fmt --all"; fi
if ! wanted unit/clippy; then :
elif cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; then echo "ok unit/clippy"; else echo "FAIL unit/clippy: see the warnings above"; fi
# The simulation needs a stopped clock, which would be compiled into every crate: see faults.sh.
tests=(cargo test --workspace --exclude layers --exclude integration-tests --exclude kv-sim --locked --quiet)
"${tests[@]}" --no-run
# Without the build they take three minutes. The line "has been running for over 60 seconds" names a test that hangs.
timeout 1500 "${tests[@]}" --no-fail-fast ${ONLY:+-- "$ONLY"} 2>&1
status=$?
if [ "$status" -eq 124 ]; then echo "FAIL unit/tests: not done within 25 minutes; see the last test that is running above"; fi
exit "$status"
