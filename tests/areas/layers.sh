# The layer table, the word list for comments, documents and commits, and the syntax of scripts.
. tests/lib/need.sh
if [ "$LIST" = yes ]; then
  list_cargo --package layers
  printf 'layers/syntax/FILE\nlayers/howto/PAGE\nlayers/howto-compiles\nlayers/doc-examples\nlayers/extract\n'
  exit
fi
rust_tests --package layers
wanted layers/syntax && for f in $(git ls-files '*.sh' tests/run .ci/run deploy/up deploy/down deploy/package deploy/images deploy/bundle deploy/bundle-install); do
  bash -n "$f" && echo "ok layers/syntax/$f" || echo "FAIL layers/syntax/$f: bash -n refuses it"
done
# Examples in doc comments that rustdoc would compile: no area does.
compiled_examples() {
  git ls-files -z '*.rs' | xargs -0 awk 'FNR == 1 {inside = 0}
    /^ *\/\/[\/!] *```/ {if (!inside && !/```(text|sh|json|yaml|ignore)/) print FILENAME ":" FNR; inside = !inside}'
}
if ! wanted layers/doc-examples; then :
elif why=$(compiled_examples) && [ -z "$why" ]; then echo "ok layers/doc-examples"
else echo "FAIL layers/doc-examples: write them as tests: $(xargs <<<"$why")"
fi
# The diffs of the how-to pages apply to the tree of today, each alone and all of them together, and compile.
diff_of() { awk '/^```diff/ {inside = 1; next} /^```/ {inside = 0} inside' "$1"; }
for page in docs/howto/add-*.md; do
  name="layers/howto/$(basename "$page" .md)"
  wanted "$name" || continue
  if why=$(diff_of "$page" | git apply --check - 2>&1); then echo "ok $name"; else echo "FAIL $name: $why"; fi
done
# copy_checked DIR: makes a target directory that has what `cargo check` needs of the dependencies, once clippy has compiled them.
copy_checked() {
  local from="$CARGO_TARGET_DIR/debug" to="$1/debug"
  rm -rf "$1"
  [ -d "$from/deps" ] || return 0
  mkdir -p "$to/deps" && cp -a "$from/build" "$from/.fingerprint" "$to" &&
    find "$from/deps" \( -name '*.rmeta' -o -name '*.rlib' -o -name '*.so' \) -print0 | xargs -0r cp -l -t "$to/deps"
}
howto_compiles() {
  local copy="$WORK/howto" page
  mkdir "$copy"
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$copy" || return 1
  for page in docs/howto/add-*.md; do diff_of "$page" | (cd "$copy" && git apply -) || return 1; done
  UPDATE_GENERATED="$copy" rust_tests --package layers --test generated >&2 || return 1
  # In a target directory of its own: cargo takes the crates of a copy for those of the original, and would reuse them there.
  copy_checked "$CARGO_TARGET_DIR/howto" || return 1
  (cd "$copy" && CARGO_TARGET_DIR="$CARGO_TARGET_DIR/howto" cargo check --workspace --tests --locked --quiet)
}
if [ "$QUICK" = yes ]; then echo "skip layers/howto-compiles: left out by --quick"
elif ! wanted layers/howto-compiles; then :
elif howto_compiles; then echo "ok layers/howto-compiles"
else echo "FAIL layers/howto-compiles: see the errors above"
fi
rm -rf "$WORK/howto"
# The tool that writes the API's data.
if ! wanted layers/extract; then :
elif ! command -v go >/dev/null; then echo "skip layers/extract: there is no go"
elif why=$(cd tools/extract && go vet ./... 2>&1 && go test ./... 2>&1); then echo "ok layers/extract"
else echo "FAIL layers/extract: $why"
fi
