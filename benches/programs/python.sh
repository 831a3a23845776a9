# A part of Python's own tests, with objects from malloc instead of Python's arenas.
# needs: python3
set -eu
log=$(mktemp)
trap 'rm -f "$log"' EXIT
PYTHONMALLOC=malloc python3 -m test test_dict test_list test_set test_json test_re test_collections test_heapq \
    test_itertools test_bytes test_string test_weakref >"$log" 2>&1 || { tail -5 "$log" >&2; exit 1; }
# Without the times.
grep 'Total tests' "$log"
