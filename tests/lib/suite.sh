# Shared by tests/run and the areas: counting, installing, building, finding things. Sourced, never run.

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export CARGO_TERM_COLOR=never
# Debug binaries by default: the unit tests have compiled most crates already, and debug builds check overflows and assertions.
PROFILE="${IRONCLAD_PROFILE:-dev}"
BIN="$CARGO_TARGET_DIR/${PROFILE/#dev/debug}"
SHARED="${IRONCLAD_SHARED:-$PWD/../shared}"
export BIN PROFILE SHARED IRONCLAD_SHARED="$SHARED" QUICK="${QUICK:-no}" LIST="${LIST:-no}" ONLY="${ONLY:-}"
WORK="$(mktemp -d /tmp/ironclad-tests.XXXXXX)"
export WORK
passed=0 failed=0 skipped=0

# In running order: cheap and informative areas first.
all_areas() { echo unit integration layers supply store faults api interop simulated badinput ha cluster; }

# An area is a script that prints lines "ok NAME", "FAIL NAME: why", "skip NAME: why" (and whatever else);
# cargo's "test result:" lines count too. A script that ends with an error without a FAIL counts as one.
run_area() {
  local area=$1 log="$WORK/$1.log" status
  printf '\n=== %s\n' "$area"
  bash -uo pipefail "tests/areas/$area.sh" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  count "$area" "$log" "$status"
}

count() {
  local area=$1 log=$2 status=$3 p f s
  p=$(( $(grep -c '^ok ' "$log") + $(sum 'passed' "$log") ))
  f=$(( $(grep -c '^FAIL ' "$log") + $(sum 'failed' "$log") ))
  s=$(( $(grep -c '^skip ' "$log") + $(sum 'ignored' "$log") ))
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
    echo "FAIL $area: the area's script ended with status $status"; f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "--- $area: $p passed, $f failed, $s skipped"
}

# Adds up one word of cargo's "test result: ok. 3 passed; 0 failed; ..." lines.
sum() { grep '^test result:' "$2" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }

finish() {
  rm -rf "$WORK"
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
