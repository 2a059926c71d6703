# The runner of the areas itself, with areas made for it.
. tests/lib/need.sh
[ "$LIST" = yes ] && { list_checks suite; exit; }
python3 tests/e2e/suite.py
