# Installs the prerequisites of tests. Sourced by areas.

# An area that is interrupted ends after its command, which is interrupted too, and stops its cluster.
trap 'exit 130' INT TERM

# need PACKAGE ...: installs missing Debian packages; fails with the reason if that is not possible.
need() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || { echo "needs root to install ${missing[*]}"; return 1; }
  export DEBIAN_FRONTEND=noninteractive
  { apt_get install -y --no-install-recommends "${missing[@]}" || { apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; }; } >"$WORK/apt.log" 2>&1 ||
    { echo "could not install ${missing[*]}: $(tail -1 "$WORK/apt.log")"; return 1; }
}

# apt_get ARGUMENT ...: runs apt-get for one area at a time.
apt_get() { flock --close "$RUN/apt.lock" apt-get "$@"; }

# only_option: prints "--only PATTERN" for a kit if one was given to tests/run.
only_option() { [ -z "$ONLY" ] || printf -- '--only\n%s\n' "$ONLY"; }

# wanted NAME: succeeds if the run has no pattern or NAME contains it.
wanted() { [ -z "$ONLY" ] || [[ $1 == *"$ONLY"* ]]; }

# rust_tests OPTION ...: runs tests of packages, with options of `cargo test`; with a pattern those whose name contains it. What the area
# `build` has built is run without cargo.
rust_tests() {
  if [ -e "$RUN/programs.json" ]; then python3 tests/lib/rust_tests.py "$RUN/programs.json" "$@" --only "$ONLY" 2>&1
  else timeout 2700 cargo test "$@" --tests --locked --quiet --no-fail-fast ${ONLY:+-- "$ONLY"} 2>&1
  fi
}

# list_cargo ARGUMENT ..., list_checks SCRIPT ..., list_kit NAME: print names of tests, one per line, for `tests/run --list`.
list_cargo() { cargo test "$@" --tests --locked --quiet -- --list 2>/dev/null | sed -n 's/: test$//p'; }
list_checks() { PYTHONPATH=tests/lib:tests/e2e python3 -c 'import checks, sys
for module in sys.argv[1:]: __import__(module)
for name, _, _ in checks.CHECKS: print(name)' "$@"; }
list_kit() { [ ! -x "$SHARED/accept/$1" ] || "$SHARED/accept/$1" --list | awk '{print $1}'; }

# build: builds the binaries, once per run.
build() { once build build_binaries; }
build_binaries() {
  echo "building the binaries (profile $PROFILE)"
  cargo build --profile "$PROFILE" --locked --quiet --bins
}

# build_all: builds binaries and tests of the workspace, and lists the programs of the tests for rust_tests.
build_all() { once build build_workspace; }
build_workspace() {
  cargo build --workspace --all-targets --locked --quiet || return 1
  [ "$PROFILE" = dev ] || build_binaries || return 1
  cargo test --workspace --tests --locked --quiet --no-run --message-format=json >"$RUN/programs.json.new" &&
    mv "$RUN/programs.json.new" "$RUN/programs.json"
}

# once NAME COMMAND ...: runs a command once per run. An area that needs it meanwhile waits for its end.
once() {
  local name=$1
  shift
  (
    flock 8
    [ ! -e "$RUN/$name.done" ] || exit 0
    "$@" 8>&- && touch "$RUN/$name.done"
  ) 8>"$RUN/$name.lock"
}

# kubectl_path: prints the newest kubectl on the machine. Some packages install several versions beside the one in PATH.
kubectl_path() {
  local found
  found=$(command -v kubectl) || return 1
  ls "$(dirname "$(readlink -f "$found")")"/kubectl.1.* 2>/dev/null | sort -V | tail -1 | grep . || echo "$found"
}

# skip_all NAME WHY: prints one skip line for a whole area.
skip_all() { echo "skip $1: $2"; exit 0; }
