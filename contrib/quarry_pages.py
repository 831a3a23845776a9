# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages of a kernel by kind and by cache for each 2 MiB; a part of quarry_snapshot.py.

All struct page are read in pieces of a block, and their members taken as columns of
words. Pages of slabs name their cache there, so drgn looks nothing up for a page.
"""

from __future__ import annotations

import re
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import drgn
from drgn import Object, PlatformFlags, Program, Type, offsetof
from drgn.helpers.linux.mm import for_each_valid_page_range

Json = dict[str, Any]

# Bytes of a block of memory.
BLOCK_BYTES = 2 << 20

# Flags of a page whose memory was never there, or is no more.
POISONED = (1 << 64) - 1

# Types above are below 0 as a number of mappings.
TYPED = 1 << 31
UNTYPED = (1 << 32) - 1

# Kinds of pages, in the order of a map's columns. CACHED ones are movable, too.
FREE, MOVABLE, SLAB, PAGE_TABLES, KERNEL, UNTOLD, CACHED = range(7)

# Flags of pages of users and files, and those of them that drop_caches leaves.
OF_USERS = ("lru", "swapbacked", "unevictable", "uptodate")
KEPT = ("swapbacked", "unevictable", "dirty", "writeback")

# Flags that /proc/kpageflags shows beside these.
SHOWN = (
    *("active", "arch_1", "arch_2", "error", "head", "hwpoison", "locked"),
    *("mappedtodisk", "mlocked", "owner_priv_1", "private", "private_2"),
    *("reclaim", "referenced", "reserved", "uncached"),
)

# The largest order that any free block has.
ORDER_MAX = 20

# Types of pages were bits that a type lacks, until they became numbers: "buddy" was
# bit 7, and "table" bit 9 (include/linux/page-flags.h, 4.18 to 6.10).
OLD_BUDDY, OLD_TABLE = UNTYPED & ~(1 << 7), UNTYPED & ~(1 << 9)


class PagesError(Exception):
    """Reason why pages cannot be told."""


@dataclass
class Places:
    """Pages of a cache by block: the index of each block, and how many lie in it."""

    blocks: array[int] = field(default_factory=lambda: array("I"))
    pages: array[int] = field(default_factory=lambda: array("H"))

    def add(self, block: int, pages: int) -> None:
        """Add pages in a block, which is the last one or behind it."""
        if self.blocks and self.blocks[-1] == block:
            self.pages[-1] += pages
        else:
            self.blocks.append(block)
            self.pages.append(pages)

    def runs(self) -> str:
        """Return the runs of blocks with equal numbers of pages."""
        runs: list[str] = []
        first = 0
        for at in range(1, len(self.blocks) + 1):
            if (
                at < len(self.blocks)
                and self.blocks[at] == self.blocks[at - 1] + 1
                and self.pages[at] == self.pages[first]
            ):
                continue
            last = f"-{self.blocks[at - 1]}" if at - first > 1 else ""
            runs.append(f"{self.blocks[first]}{last}:{self.pages[first]}")
            first = at
        return " ".join(runs)


class Layout:
    """Members of struct page, flags and types, by the kernel's own symbols."""

    def __init__(self, prog: Program, slab_type: Type) -> None:
        """Find what tells pages of slabs."""
        page = prog.type("struct page")
        self.prog, self.page, self.size = prog, page, page.size
        if prog.address_size() != 8 or self.size % 8:
            raise PagesError("struct page is not made of words of 8 bytes")
        is_little = prog.platform.flags & PlatformFlags.IS_LITTLE_ENDIAN
        self.is_swapped = bool(is_little) != (sys.byteorder == "little")
        self.link = offsetof(
            page,
            "compound_info" if page.has_member("compound_info") else "compound_head",
        )
        self.type = offsetof(page, "_mapcount")
        self.cache = offsetof(slab_type, "slab_cache")
        # Pages of slabs have a type where the kernel tells debuggers its number.
        self.slab = self.told("SLAB")
        self.slab_flag = self.flags("slab") if self.slab is None else 0
        if self.slab is None and not self.slab_flag:
            raise LookupError("PG_slab")

    def told(self, name: str) -> int | None:
        """Return the number of a type that the kernel tells debuggers."""
        info = self.prog["VMCOREINFO"].string_().decode(errors="replace")
        name = rf"^NUMBER\(PAGE_{name}_MAPCOUNT_VALUE\)=(-?\d+)$"
        found = re.search(name, info, re.MULTILINE)
        return int(found[1]) & UNTYPED if found else None

    def constant(self, name: str) -> int | None:
        """Return a constant of the types, if they have it."""
        try:
            return self.prog.constant(name).value_()
        except LookupError:
            return None

    def flags(self, *names: str) -> int:
        """Return the bits of those flags that the kernel has."""
        bits = {self.constant(f"PG_{name}") for name in names} - {None}
        return sum(1 << bit for bit in bits)

    def column(self, data: bytes, code: str, offset: int) -> array[int]:
        """Return a member of all pages of a piece."""
        words = array(code, data)
        if self.is_swapped:
            words.byteswap()
        return words[offset // words.itemsize :: self.size // words.itemsize]


class Kinds:
    """Kinds of pages, as Quarry tells them by the flags of /proc/kpageflags."""

    def __init__(self, layout: Layout) -> None:
        """Find the constants, or raise if one is missing."""
        self.layout = layout
        self.buddy, self.offline = layout.told("BUDDY"), layout.told("OFFLINE")
        table = layout.constant("PGTY_table")
        if self.buddy is None:
            raise PagesError("VMCOREINFO has no type of free pages")
        if table is not None:
            self.table = table << 24
        elif self.buddy == OLD_BUDDY:
            self.table = OLD_TABLE
        else:
            raise PagesError("the type of page tables is not known")
        self.huge = layout.told("HUGETLB")
        if self.huge is None and huge_pages(layout.prog):
            raise PagesError("pages of hugetlb have no type")
        self.mapping = offsetof(layout.page, "mapping")
        self.private = offsetof(layout.page, "private")
        self.of_users, self.kept = layout.flags(*OF_USERS), layout.flags(*KEPT)
        self.shown = layout.flags(*SHOWN) | self.of_users | self.kept
        self.head, self.broken = layout.flags("head"), layout.flags("hwpoison")
        self.mapped = mapped_counts(layout)
        # Kinds of pages by their flags, types and mappings.
        self.known: dict[tuple[int, int, int], int] = {}
        self.free_end, self.last = 0, UNTOLD

    def kind(self, flags: int, type_: int, is_anon: int) -> int:
        """Return the kind of a page that is no tail; of users it is not mapped."""
        if type_ == self.buddy:
            return FREE
        if flags & self.layout.slab_flag or type_ == self.layout.slab:
            return SLAB
        if type_ == self.table:
            return PAGE_TABLES
        if flags & self.broken or type_ == self.offline:
            return KERNEL
        if is_anon or type_ == self.huge:
            return MOVABLE
        if flags & self.of_users:
            return MOVABLE if flags & self.kept or type_ < TYPED else CACHED
        return KERNEL if flags & self.shown or type_ < TYPED else UNTOLD

    def count(self, first: int, data: bytes) -> list[int]:
        """Count the pages of a piece by kind."""
        counts = [0] * 7
        pages = len(data) // self.layout.size
        # Pages that a free block from before covers.
        at = min(max(self.free_end - first, 0), pages)
        counts[FREE] = at
        if at == pages:
            return counts
        column = self.layout.column
        flags = column(data, "Q", 0)
        links = column(data, "Q", self.layout.link)
        types = column(data, "I", self.layout.type)
        mappings = column(data, "Q", self.mapping)
        orders = column(data, "Q", self.private)
        relevant = self.shown | self.layout.slab_flag
        while at < pages:
            type_ = types[at]
            if flags[at] == POISONED:
                at += 1
                continue
            if not links[at] & 1:
                # All numbers of mappings are one.
                key = (flags[at] & relevant, max(type_, TYPED - 1), mappings[at] & 1)
                self.last = self.known.get(key, -1)
                if self.last < 0:
                    self.last = self.known[key] = self.kind(*key)
                if self.last == FREE:
                    pages_free = 1 << min(orders[at], ORDER_MAX)
                    # One that was taken meanwhile has no order any more.
                    is_block = (first + at) % pages_free == 0
                    self.free_end = first + at + (pages_free if is_block else 1)
                    past = min(self.free_end - first, pages)
                    counts[FREE] += past - at
                    at = past
                    continue
                if self.last == CACHED and flags[at] & self.head:
                    past = at + 1
                    while past < pages and links[past] & 1:
                        past += 1
                    if self.is_mapped(data, types, at, past):
                        self.last = MOVABLE
            counts[self.last] += 1
            at += 1
        counts[MOVABLE] += counts[CACHED]
        return counts

    def is_mapped(self, data: bytes, types: array[int], at: int, past: int) -> bool:
        """Say if a page of several, which are at these places, is mapped."""
        if any(type_ < TYPED for type_ in types[at:past]):
            return True
        piece = data[at * self.layout.size :]
        counts = (
            self.layout.column(piece, "I", offset)[:1]
            for offset in self.mapped
            if offset < len(piece)
        )
        return any(count[0] < TYPED for count in counts)


def huge_pages(prog: Program) -> int:
    """Count the pages of hugetlb's pools."""
    try:
        return sum(state.nr_huge_pages.value_() for state in prog["hstates"])
    except LookupError:
        return 0


def mapped_counts(layout: Layout) -> list[int]:
    """Return the places of a large page's own numbers of mappings."""
    try:
        folio = layout.prog.type("struct folio")
    except LookupError:
        return [layout.size + offsetof(layout.page, "compound_mapcount")]
    names = ("_large_mapcount", "_entire_mapcount", "_total_mapcount")
    return [offsetof(folio, name) for name in names if folio.has_member(name)]


class Pages:
    """All pages of a kernel."""

    def __init__(self, layout: Layout, kinds: Kinds | None) -> None:
        """Take the layout, and what tells kinds if they can be told."""
        self.layout, self.kinds = layout, kinds
        self.page_bytes = layout.prog["PAGE_SIZE"].value_()
        self.per_block = BLOCK_BYTES // self.page_bytes
        # Places of slabs by the address of their cache.
        self.places: dict[int, Places] = {}
        # Rows of the map, and the run that may go on: its first block, how many have
        # these counts of kinds, and the counts.
        self.rows: list[str] = []
        self.run: tuple[int, int, list[int]] = (0, 0, [])
        # Pages that were read, and those that the dump lacks.
        self.count, self.lacking = 0, 0

    def read(self) -> None:
        """Read all pages, once."""
        memory = memory_of(self.layout.prog, self.page_bytes) if self.kinds else []
        # The cache whose slab reaches the end of a piece, and the page behind it.
        open_cache, behind = 0, -1
        for first, data in self.pieces():
            carried = open_cache if first == behind else 0
            behind = first + len(data) // self.layout.size
            open_cache = self.take_slabs(first, data, carried)
            for start, end in memory:
                start, end = max(start, first), min(end, behind)
                if self.kinds and start < end:
                    size = self.layout.size
                    part = data[(start - first) * size : (end - first) * size]
                    self.take_kinds(start, self.kinds.count(start, part))

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Read struct page: the number of each piece's first page, and the bytes."""
        prog, size = self.layout.prog, self.layout.size
        for first, end, pages in for_each_valid_page_range(prog):
            base = pages.value_()
            while first < end:
                past = min(end, (first // self.per_block + 1) * self.per_block)
                try:
                    data = prog.read(base + first * size, (past - first) * size)
                except drgn.FaultError:
                    self.lacking += past - first
                else:
                    self.count += past - first
                    yield first, data
                first = past

    def take_slabs(self, first: int, data: bytes, carried: int) -> int:
        """Add the slabs of a piece; return the cache of one that may go on behind."""
        layout = self.layout
        if layout.slab is None:
            flags = layout.column(data, "Q", 0)
            heads = [
                at
                for at, word in enumerate(flags)
                if word & layout.slab_flag and word != POISONED
            ]
        else:
            types = layout.column(data, "I", layout.type)
            heads = [at for at, type_ in enumerate(types) if type_ == layout.slab]
        if not heads and not carried:
            return 0
        links = layout.column(data, "Q", layout.link)
        caches = layout.column(data, "Q", layout.cache)
        starts = [(head, caches[head], head + 1) for head in heads]
        if carried:
            starts.insert(0, (0, carried, 0))
        open_cache = 0
        for start, cache, past in starts:
            # Other pages of a slab are tails: the lowest bit of their link is set.
            while past < len(links) and links[past] & 1:
                past += 1
            if past > start:
                block = first // self.per_block
                self.places.setdefault(cache, Places()).add(block, past - start)
            if past == len(links):
                open_cache = cache
        return open_cache

    def take_kinds(self, first: int, counts: list[int]) -> None:
        """Add the counts of a piece to the map."""
        block = first // self.per_block
        start, blocks, before = self.run
        if start + blocks == block and counts == before:
            self.run = (start, blocks + 1, before)
            return
        if blocks and start + blocks == block + 1:
            # A part of the last block came before.
            counts = [a + b for a, b in zip(before, counts)]
            blocks -= 1
        self.close(start, blocks, before)
        self.run = (block, 1, counts)

    def close(self, start: int, blocks: int, counts: list[int]) -> None:
        """Add the row of a run to the map."""
        if blocks and any(counts):
            self.rows.append(" ".join(map(str, (start, blocks, *counts))))

    def map(self) -> str:
        """Return the map in the form of `quarry snapshot`."""
        self.close(*self.run)
        self.run = (0, 0, [])
        head = [
            "quarry blocks - version: 1",
            f"page_bytes {self.page_bytes}",
            f"block_bytes {BLOCK_BYTES}",
            "# first blocks free movable slab page_tables kernel untold cached",
        ]
        return "\n".join([*head, *self.rows, ""])


def memory_of(prog: Program, page_bytes: int) -> list[tuple[int, int]]:
    """Return the ranges of pages that are memory, as /proc/iomem names them."""
    ranges = []
    resource = prog["iomem_resource"].child
    while resource:
        if resource.name.string_() == b"System RAM":
            start, end = resource.start.value_(), resource.end.value_() + 1
            ranges.append((-(-start // page_bytes), end // page_bytes))
        resource = resource.sibling
    return ranges


def say(what: str) -> None:
    """Print a line for the user."""
    print(f"quarry_snapshot: {what}", file=sys.stderr)


def blocks_of(prog: Program, slab_type: Type, caches: list[tuple[str, Object]]) -> Json:
    """Return where slabs lie, and the map; or say what is not told."""
    began = time.monotonic()
    try:
        layout = Layout(prog, slab_type)
    except (LookupError, PagesError) as error:
        say(f"left out where slabs lie, as their pages cannot be told: {error}")
        return {}
    try:
        kinds = Kinds(layout)
    except (LookupError, PagesError) as error:
        say(f"left out the map of memory: {error}")
        kinds = None
    pages = Pages(layout, kinds)
    pages.read()
    names = {cache.value_(): name for name, cache in caches}
    others = [sum(of.pages) for at, of in pages.places.items() if at not in names]
    gib = pages.count * pages.page_bytes / (1 << 30)
    told = f"read struct page of {gib:.1f} GiB in {time.monotonic() - began:.1f} s"
    if pages.lacking:
        told += f"; the dump lacks {pages.lacking} of them"
    if others:
        told += f"; {sum(others)} pages of slabs are of no cache in the list"
    say(told)
    runs = {names[at]: of.runs() for at, of in pages.places.items() if at in names}
    found: Json = {"slab_blocks": {"block_bytes": BLOCK_BYTES, "caches": runs}}
    # A map of a part of memory would be taken for all of it.
    if kinds and not pages.lacking:
        found["blocks"] = pages.map()
    return found
