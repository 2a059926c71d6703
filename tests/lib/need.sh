# Installs the prerequisites of tests. Sourced by areas.

# need PACKAGE ...: installs missing Debian packages; fails with the reason if that is not possible.
need() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || { echo "needs root to install ${missing[*]}"; return 1; }
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install -y --no-install-recommends "${missing[@]}" || { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$WORK/apt.log" 2>&1 ||
    { echo "could not install ${missing[*]}: $(tail -1 "$WORK/apt.log")"; return 1; }
}

# only_option: prints "--only PATTERN" for a kit if one was given to tests/run.
only_option() { [ -z "$ONLY" ] || printf -- '--only\n%s\n' "$ONLY"; }

# wanted NAME: succeeds if the run has no pattern or NAME contains it.
wanted() { [ -z "$ONLY" ] || [[ $1 == *"$ONLY"* ]]; }

# cargo_test ARGUMENT ...: runs cargo's tests; with a pattern only those whose name contains it.
cargo_test() { cargo test "$@" --locked --quiet ${ONLY:+-- "$ONLY"} 2>&1; }

# list_cargo ARGUMENT ..., list_checks SCRIPT ..., list_kit NAME: print names of tests, one per line, for `tests/run --list`.
list_cargo() { cargo test "$@" --locked --quiet -- --list 2>/dev/null | sed -n 's/: test$//p'; }
list_checks() { PYTHONPATH=tests/lib:tests/e2e python3 -c 'import checks, sys
for module in sys.argv[1:]: __import__(module)
for name, _, _ in checks.CHECKS: print(name)' "$@"; }
list_kit() { [ ! -x "$SHARED/accept/$1" ] || "$SHARED/accept/$1" --list | awk '{print $1}'; }

# build: builds the binaries, once per run.
build() {
  [ -e "$WORK/built" ] && return 0
  echo "building the binaries (profile $PROFILE)"
  cargo build --profile "$PROFILE" --locked --quiet --bins && touch "$WORK/built"
}

# kubectl_path: prints the newest kubectl on the machine. Some packages install several versions beside the one in PATH.
kubectl_path() {
  local found
  found=$(command -v kubectl) || return 1
  ls "$(dirname "$(readlink -f "$found")")"/kubectl.1.* 2>/dev/null | sort -V | tail -1 | grep . || echo "$found"
}

# skip_all NAME WHY: prints one skip line for a whole area.
skip_all() { echo "skip $1: $2"; exit 0; }
