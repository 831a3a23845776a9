"""Checks a recording of boot.py against the flags of pages, and counts how types were mixed.

    python check.py FOLDER

Writes FOLDER/fold.txt: pages by kind in each block of 2 MiB at the end of each stage. It shares no
code with `quarry look`, whose counts are tested against it. Fails where events were lost, memory
was reclaimed or moved, or an event and the flags disagree.
"""

import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

KINDS = ("free", "movable", "slab", "page tables", "kernel", "untold")
BLOCK_BYTES = 2 << 20
RECLAIM = ("pgscan", "pgsteal", "allocstall", "compact_", "pgmigrate", "drop_", "kswapd_")
TYPES = ("unmovable", "movable", "reclaimable")
# Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst): the first row with one of a
# page's bits names its kind.
NOPAGE, COMPOUND_TAIL = 1 << 20, 1 << 16
BITS = (
    ("free", (10,)),
    ("slab", (7,)),
    ("page tables", (26,)),
    ("kernel", (19, 23, 24)),
    ("movable", (3, 5, 12, 13, 14, 17, 18)),
)
MASKS = [(name, sum(1 << bit for bit in bits)) for name, bits in BITS]
EVENT = re.compile(r" ([\d.]+): (\w+): (?:page=\S+ )?pfn=(0x[0-9a-f]+) (?:order=(\d+))?(.*)")


def page_bytes(folder: Path) -> int:
    """Size of a page."""
    file = folder / "guest" / "page_size"
    return int(file.read_text()) if file.exists() else 4096


def memory(folder: Path) -> list[range]:
    """Pages that are memory."""
    text = (folder / "guest" / "iomem").read_text()
    ends = re.findall(r"^(\w+)-(\w+) : System RAM", text, re.M)
    size = page_bytes(folder)
    return [range(-(-int(first, 16) // size), (int(last, 16) + 1) // size) for first, last in ends]


def kinds(folder: Path, stage: str) -> Iterator[tuple[int, str]]:
    """The kind of each page at the end of a stage."""
    data = (folder / stage / "kpageflags").read_bytes()
    flags = struct.unpack(f"<{len(data) // 8}Q", data)
    for part in memory(folder):
        head = "untold"
        for pfn in part:
            if flags[pfn] & NOPAGE:
                continue
            own = next((name for name, mask in MASKS if flags[pfn] & mask), None)
            if own is None and not flags[pfn] & COMPOUND_TAIL:
                own = "kernel" if flags[pfn] else "untold"
            head = own or head
            yield pfn, head


def fold(folder: Path, stage: str) -> str:
    """Lines with the pages of each block by kind."""
    blocks: dict[int, Counter] = {}
    block = BLOCK_BYTES // page_bytes(folder)
    for pfn, kind in kinds(folder, stage):
        blocks.setdefault(pfn // block, Counter())[kind] += 1
    rows = ((at, *(pages[kind] for kind in KINDS)) for at, pages in sorted(blocks.items()))
    return "".join(f"{stage} {' '.join(map(str, row))}\n" for row in rows)


class Recording:
    """Pages that are allocated by the events so far, and what the events said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live: set[int] = set()
        self.freed: dict[int, str] = {}
        self.counts: Counter = Counter()
        self.mixed: Counter = Counter()
        self.faults: list[str] = []
        self.folds = ""

    def event(self, time: str, name: str, pfn: int, order: int, rest: str) -> None:
        """Takes an event of pages.

        Of one time, a free on one CPU may stand before the allocation on another.
        """
        pages = range(pfn, pfn + (1 << order))
        self.counts[name] += 1
        if name == "mm_page_alloc" and pfn:
            if not self.live.isdisjoint(pages):
                self.faults.append(f"{pfn:#x} allocated twice")
            if self.freed.get(pfn) != time:
                self.live.update(pages)
        elif name == "mm_page_free":
            self.freed[pfn] = time if pfn not in self.live else ""
            self.live.difference_update(pages)
        elif name == "mm_page_alloc_extfrag":
            facts = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", rest)}
            wanted, taken = TYPES[facts["alloc_migratetype"]], TYPES[facts["fallback_migratetype"]]
            how = "claimed" if facts["change_ownership"] else "single"
            self.mixed[wanted, taken, how, facts["alloc_order"], facts["fallback_order"]] += 1

    def stage(self, name: str) -> None:
        """Compares with the flags at the end of a stage."""
        sums = Counter((kind, pfn in self.live) for pfn, kind in kinds(self.folder, name))
        if sums["free", True]:
            self.faults.append(f"{name}: {sums['free', True]} free pages were not freed")
        rows = (line.split() for line in (self.folder / name / "vmstat").read_text().splitlines())
        for key, value in rows:
            if key.startswith(RECLAIM) and int(value):
                self.faults.append(f"{name}: {key} is {value}")
        text = fold(self.folder, name)
        self.folds += text
        blocks = [[int(word) for word in line.split()[2:]] for line in text.splitlines()]
        tainted = sum(any(row[2:5]) for row in blocks)
        both = sum(bool(any(row[2:5]) and row[1]) for row in blocks)
        pages = " ".join(f"{sum(row[at] for row in blocks):6}" for at in range(len(KINDS)))
        print(f"{name:9} {pages} {tainted:8} {both:8} {sum(self.mixed.values()):8}")


def main() -> None:
    """Checks a folder."""
    folder = Path(sys.argv[1])
    recording = Recording(folder)
    heads = " ".join(f"{kind[:6]:>6}" for kind in KINDS)
    print(f"{'stage':9} {heads} {'tainted':>8} {'mixed':>8} {'extfrag':>8}")
    for line in (folder / "trace.txt").open(errors="replace"):
        if event := EVENT.search(line):
            time, name, pfn, order, rest = event.groups()
            recording.event(time, name, int(pfn, 16), int(order or 0), rest)
        elif mark := re.search(r"tracing_mark_write: stage (\w+)", line):
            recording.stage(mark[1])
        elif "LOST" in line:
            recording.faults.append(line.strip())
    for file in folder.glob("guest/lost-*"):
        counts = re.findall(r"(overrun|dropped events): (\d+)", file.read_text())
        recording.faults += [f"{file.name}: {name} {count}" for name, count in counts if int(count)]
    (folder / "fold.txt").write_text(recording.folds)
    print(dict(recording.counts))
    for (wanted, taken, how, order, of), count in sorted(recording.mixed.items()):
        print(f"{count:6} {how:7} {wanted} from {taken}, order {order} from {of}")
    if recording.faults:
        sys.exit("\n".join(recording.faults))


if __name__ == "__main__":
    main()
