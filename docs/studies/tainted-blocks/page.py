"""Makes ../tainted-blocks.md of the rows of the sweep guests.toml.

    python page.py ROWS > ../tainted-blocks.md
"""

import sys
from pathlib import Path
from statistics import median

import pyarrow.dataset as ds

POLICIES = ["release", "steer", "owned", "merging", "release+block=7", "release+block=10"]
FIGURES = {
    "tainted": "pages.placement.tainted_blocks",
    "fallbacks": "pages.placement.fallbacks",
    "lists": "pages.placement.lists_99",
    "locks": "locks.zone",
    "held": "pages.placement.cpu_list_pages",
}
# Two boots of one kernel differed by as much (tests/data/mixing/README.md).
NOISE = 0.14
OLD = "6.1"

ABOUT = """\
# Does the kernel spoil huge pages, and which policy would not

A page that stays where it is keeps its block of 2 MiB from being a huge page. Guests of 512 MiB were filled with anonymous memory and files. Then
slabs, sockets and processes grew, a third of all was dropped, and the same grew again, until no free block was left; nothing was reclaimed or moved
([data](../../crates/quarry-lab/tests/data/mixing/README.md)). Each recording has the page events of one boot of one release. They are replayed under the
rules of four releases and under five other policies ([pages](../pages.md#would-another-policy-help)).

```sh
cd docs/studies/tainted-blocks && mkdir guests
for name in 6.11.0-2 7.0.13-2 7.0.13-8; do
  xz -dc ../../../crates/quarry-lab/tests/data/mixing/$name.trace.txt.xz |
    quarry import - --kernel ${name%-*} --page-size 4096 -o guests/$name.parquet
done
quarry sweep guests.toml -o rows && python page.py rows > ../tainted-blocks.md
```
"""


def rows(folder):
    """The rows of the sweep, with the names that the page uses."""
    files = [str(path) for path in Path(folder).glob("part-*.parquet")]
    for row in ds.dataset(files).to_table().to_pylist():
        name = Path(row["input"]).stem
        yield {
            "guest": name,
            "era": row["asked.design"].partition("@")[2],
            "policy": row["asked.policy"],
        } | {figure: row[column] for figure, column in FIGURES.items()}


def table(head, body):
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main(folder):
    """Prints the page."""
    all_rows = list(rows(folder))
    guests = sorted({row["guest"] for row in all_rows})
    eras = sorted({row["era"] for row in all_rows}, key=lambda era: [int(n) for n in era.split(".")])

    def of(**wanted):
        found = [row for row in all_rows if all(row[key] == value for key, value in wanted.items())]
        return found

    def ratio(policy, figure):
        """Of a policy to the release's rules, for the rules since 6.10."""
        base = {(row["guest"], row["era"]): row[figure] for row in of(policy="release")}
        found = [row for row in of(policy=policy) if row["era"] != OLD]
        pairs = [(row[figure], base[row["guest"], row["era"]]) for row in found]
        return [a / b for a, b in pairs if b]

    def against_old(era):
        """Tainted blocks by the rules of a release to those of 6.1."""
        of_era = {row["guest"]: row["tainted"] for row in of(policy="release", era=era)}
        return [of_era[row["guest"]] / row["tainted"] for row in of(policy="release", era=OLD)]

    print(ABOUT)
    print("## Answer\n")
    found = [ratio for era in eras if era != OLD for ratio in against_old(era)]
    print(
        f"* On the same requests the rules since 6.10 spoil {min(found):.2f} to {max(found):.2f} times as many blocks as those of {OLD}:"
        " a free block of another type gives one allocation its pages, and what is left of it stays where it was. Before, the rest went to"
        " the taker's list, and its next allocations stayed in the block. The kernels themselves had 142 tainted blocks (6.1.176),"
        " 220 (6.11.0) and 180 to 215 (6.12 to 7.3)."
    )
    sure = [p for p in POLICIES[1:] if all(abs(r - 1) > NOISE for r in ratio(p, "tainted"))]
    unsure = [p for p in POLICIES[1:] if p not in sure]
    for policy in sure:
        found = ratio(policy, "tainted")
        print(
            f"* `{policy}` leaves {min(found):.2f} to {max(found):.2f} of the tainted blocks that the rules since 6.10 leave, in all"
            f" {len(found)} cases. Two boots of one kernel differ by up to {NOISE:.0%}."
        )
    print(
        f"* {', '.join(f'`{policy}`' for policy in unsure)}: no difference beyond that of two boots in every case."
        " They are proposals for other aims: holds of the zone lock, and sizes of pageblocks."
    )
    print("\n## Tainted blocks of 2 MiB at the end\n")
    print("Rules of each release on each recording, of 224 blocks.\n")
    body = [[g, *(of(guest=g, era=e, policy="release")[0]["tainted"] for e in eras)] for g in guests]
    print(table(["recording", *eras], body))
    print("\nPolicies by the median ratio to the release's own rules since 6.10, with the least and the most.\n")
    body = []
    for policy in POLICIES[1:]:
        cells = []
        for figure in FIGURES:
            found = ratio(policy, figure)
            cells.append(f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "-")
        body.append([f"`{policy}`", *cells])
    head = ["policy", "tainted blocks", "fallbacks", "lists looked at, 99 of 100", "zone locks", "pages on CPUs' lists, most"]
    print(table(head, body))
    print("\nFallbacks by the rules of each release.\n")
    body = [[g, *(of(guest=g, era=e, policy="release")[0]["fallbacks"] for e in eras)] for g in guests]
    print(table(["recording", *eras], body))
    print(
        "\nThe replays begin with 448 MiB of free memory: what the kernel took before its first event is left out. All page events are"
        " driven, those of slabs too, so slabs are the recorded kernel's. One gigabyte is more than a guest has, so `steer` has one region,"
        " and its answer here is its other half: what is not movable goes to pageblocks that have such pages already."
    )


main(sys.argv[1])
