# Unit and integration tests of the crates (cargo).
. tests/lib/need.sh
tests=(--workspace --exclude layers --exclude integration-tests --exclude kv-sim)
if [ "$LIST" = yes ]; then
  list_cargo "${tests[@]}"
  exit
fi
# Keys and certificates, and packets through a real kernel.
why=$(need openssl nftables iproute2 conntrack containernetworking-plugins) || echo "note: $why"
# Of the 25 minutes that they may take, the build is no part.
[ -e "$RUN/programs.json" ] || cargo test "${tests[@]}" --tests --locked --quiet --no-run
rust_tests "${tests[@]}"
