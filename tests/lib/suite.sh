# Shared by tests/run and the areas: counting, finding things. Sourced, never run. lanes.sh runs the areas.

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export CARGO_TERM_COLOR=never
# Debug binaries by default: the unit tests have compiled most crates already, and debug builds check overflows and assertions.
PROFILE="${IRONCLAD_PROFILE:-dev}"
BIN="$CARGO_TARGET_DIR/${PROFILE/#dev/debug}"
SHARED="${IRONCLAD_SHARED:-$PWD/../shared}"
# The build of deploy/lib.sh uses this library too: another one would compile all binaries again.
jemalloc=/usr/lib/$(uname -m)-linux-gnu/libjemalloc_pic.a
if [ -e "$jemalloc" ]; then export JEMALLOC_OVERRIDE="${JEMALLOC_OVERRIDE:-$jemalloc}"; fi
export BIN PROFILE SHARED IRONCLAD_SHARED="$SHARED" QUICK="${QUICK:-no}" LIST="${LIST:-no}" ONLY="${ONLY:-}"
# Of this run: each process that it starts has it in its environment, and each area has a folder in it, $WORK.
RUN="$(mktemp -d -t ironclad.XXXXXX)"
export RUN WORK="$RUN"
AREAS="${IRONCLAD_TEST_AREAS:-tests/areas}"

# planned WORD ...: prints the areas of the lines of the plan that begin with these words.
planned() {
  local word
  for word in "$@"; do sed -n "s/^$word //p" "$AREAS/plan"; done
}

all_areas() { planned first idle lane alone | xargs; }

# chosen AREA ...: prints those of the areas that this run has.
chosen() {
  local area
  for area in "$@"; do [[ " ${areas[*]} " != *" $area "* ]] || echo "$area"; done | xargs
}

# summarize AREA LOG STATUS SECONDS: counts the lines "ok NAME", "FAIL NAME: why", "skip NAME: why" of an area, and cargo's
# "test result:" lines. A script that ends with an error without a FAIL counts as one, and so does one without any result.
summarize() {
  local area=$1 log=$2 status=$3 seconds=$4 p f s why=""
  p=$(( $(grep -c '^ok ' "$log") + $(sum 'passed' "$log") ))
  f=$(( $(grep -c '^FAIL ' "$log") + $(sum 'failed' "$log") ))
  s=$(( $(grep -c '^skip ' "$log") + $(sum 'ignored' "$log") ))
  if [ "$status" -ne 0 ]; then why="the area's script ended with status $status"
  elif [ -z "$ONLY" ] && [ $((p + s)) -eq 0 ]; then why="the area's script printed no result"
  fi
  if [ -n "$why" ] && [ "$f" -eq 0 ]; then echo "FAIL $area: $why"; f=1; fi
  echo "$p $f $s" >>"$RUN/counts"
  echo "--- $area: $p passed, $f failed, $s skipped, $seconds s"
}

# Adds up one word of cargo's "test result: ok. 3 passed; 0 failed; ..." lines.
sum() { grep '^test result:' "$2" | grep -oE "[0-9]+ $1" | awk '{n += $1} END {print n + 0}'; }

# finish: prints the sums of all areas, and succeeds if something passed and nothing failed.
finish() {
  local totals
  totals=$(awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}' "$RUN/counts" 2>/dev/null)
  read -r passed failed skipped <<<"${totals:-0 0 0}"
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
