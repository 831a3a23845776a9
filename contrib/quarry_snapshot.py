#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write a snapshot of slab caches for Quarry, from a vmcore or the live kernel.

    drgn -c vmcore -s vmlinux quarry_snapshot.py > snapshot.json
    sudo drgn quarry_snapshot.py [MAP.json] > snapshot.json

The output is what `quarry snapshot` writes, and two keys more. "hidden" has free
objects that the kernel counts as active, in the slabs of CPUs, on their partial lists,
in sheaves and in barns. "slab_blocks" has the pages of each cache in each 2 MiB of
memory: "5-7:512 9:3" are 512 pages in each of the blocks 5 to 7, and 3 in block 9.

MAP.json is a snapshot of `quarry snapshot` of the same boot: its map of memory is kept.

The script needs drgn 0.3 and the kernel's debugging symbols. Kernels with SLUB from 5.9
on are read, by the members that their types have, not by release.
"""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drgn
from drgn import (
    Architecture,
    Object,
    PlatformFlags,
    Program,
    ProgramFlags,
    Type,
    TypeKind,
    offsetof,
)
from drgn.helpers.linux.cpumask import (
    cpu_online_mask,
    cpu_possible_mask,
    cpu_present_mask,
    cpumask_to_cpulist,
    for_each_possible_cpu,
)
from drgn.helpers.linux.kernfs import kernfs_children, kernfs_name
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.mm import for_each_valid_page_range, page_to_virt, totalram_pages
from drgn.helpers.linux.nodemask import for_each_online_node
from drgn.helpers.linux.percpu import per_cpu_ptr
from drgn.helpers.linux.slab import for_each_slab_cache
from drgn.helpers.linux.timekeeping import ktime_get_coarse_ns, ktime_get_real_seconds
from drgn.helpers.linux.vmstat import global_node_page_state

Json = dict[str, Any]

# Readings of a live cache until two agree.
READINGS = 5

# Bytes of a block of memory.
BLOCK_BYTES = 2 << 20

# Flags of a page whose memory was never there, or is no more.
POISONED = (1 << 64) - 1

# Bits of a cache's flags that sysfs shows as files. Types have them from 6.9 on, with
# an underscore in front.
FLAGS = {
    "cache_dma": ("SLAB_CACHE_DMA", 0x4000),
    "destroy_by_rcu": ("SLAB_TYPESAFE_BY_RCU", 0x80000),
    "hwcache_align": ("SLAB_HWCACHE_ALIGN", 0x2000),
    "poison": ("SLAB_POISON", 0x800),
    "reclaim_account": ("SLAB_RECLAIM_ACCOUNT", 0x20000),
    "red_zone": ("SLAB_RED_ZONE", 0x400),
    "sanity_checks": ("SLAB_CONSISTENCY_CHECKS", 0x100),
    "store_user": ("SLAB_STORE_USER", 0x10000),
    "trace": ("SLAB_TRACE", 0x200000),
}

# Variables of the sysctls of vm that the page allocator depends on.
SYSCTLS = {
    "vm.lowmem_reserve_ratio": "sysctl_lowmem_reserve_ratio",
    "vm.min_free_kbytes": "min_free_kbytes",
    "vm.percpu_pagelist_fraction": "percpu_pagelist_fraction",
    "vm.percpu_pagelist_high_fraction": "percpu_pagelist_high_fraction",
    "vm.watermark_boost_factor": "watermark_boost_factor",
    "vm.watermark_scale_factor": "watermark_scale_factor",
}

ARCHITECTURES = {
    Architecture.X86_64: "x86_64",
    Architecture.AARCH64: "aarch64",
    Architecture.S390X: "s390x",
    Architecture.RISCV64: "riscv64",
}


class SnapshotError(Exception):
    """Reason why no snapshot can be written."""


def has(value: Object, member: str) -> bool:
    """Say if a structure, or what a pointer points to, has a member."""
    type_ = value.type_
    while type_.kind in (TypeKind.POINTER, TypeKind.TYPEDEF):
        type_ = type_.type
    return type_.kind in (TypeKind.STRUCT, TypeKind.UNION) and type_.has_member(member)


def text(value: Object) -> str:
    """Return a string of the kernel."""
    return value.string_().decode(errors="replace")


def by_index(counts: dict[int, int], letter: str) -> str:
    """Format a count as sysfs does: the sum, then the parts of nodes."""
    parts = [
        f" {letter}{index}={count}" for index, count in sorted(counts.items()) if count
    ]
    return f"{sum(counts.values())}{''.join(parts)}"


def by_free(counts: Counter[int]) -> dict[str, int]:
    """Format slabs by their free objects."""
    return {str(free): slabs for free, slabs in sorted(counts.items())}


@dataclass
class Node:
    """Slabs of a cache on a node; of the partial list by objects and free objects."""

    slabs: int
    objects: int
    partial: Counter[tuple[int, int]]
    barn: Json

    def free(self) -> int:
        """Count the free objects of the partial list."""
        return sum(free * slabs for (_, free), slabs in self.partial.items())

    def partial_objects(self) -> int:
        """Count the objects in use of the partial list."""
        return sum(
            (objects - free) * slabs for (objects, free), slabs in self.partial.items()
        )

    def hidden(self) -> Json:
        """Return the slabs of the list by their free objects, and the barn."""
        counts: Counter[int] = Counter()
        for (_, free), slabs in self.partial.items():
            counts[free] += slabs
        return {**({"partial": by_free(counts)} if counts else {}), **self.barn}


@dataclass
class Cpu:
    """Free objects that a CPU holds of a cache."""

    slab_free: int | None = None
    partial: Counter[int] = field(default_factory=Counter)
    # Free objects of the list as the kernel takes them.
    partial_guess: int = 0
    sheaves: dict[str, int] = field(default_factory=dict)

    def hidden(self) -> Json:
        """Return what is there."""
        held: Json = {}
        if self.slab_free is not None:
            held["slab_free"] = self.slab_free
        if self.partial:
            held["partial"] = by_free(self.partial)
        return {**held, **self.sheaves}


class Cache:
    """A cache of SLUB."""

    def __init__(
        self, prog: Program, cache: Object, slab_type: Type, list_member: str
    ) -> None:
        """Take a cache, the type of slabs, and the member that links partial ones."""
        self.prog = prog
        self.cache = cache
        self.slab_type = slab_type
        self.list_member = list_member
        self.name = text(cache.name)
        self.size = cache.size.value_()
        # The order stands above the number of objects.
        self.order, self.slots = divmod(cache.oo.x.value_(), 1 << 16)

    def read(self) -> tuple[Json, Json, Json]:
        """Return the row of slabinfo, the files of sysfs, and what both hide."""
        nodes = self.nodes()
        cpus = {cpu: self.cpu(cpu) for cpu in for_each_possible_cpu(self.prog)}
        hidden = {
            "cpus": {
                str(index): cpu.hidden() for index, cpu in cpus.items() if cpu.hidden()
            },
            "nodes": {
                str(index): node.hidden()
                for index, node in nodes.items()
                if node.hidden()
            },
        }
        hidden = {key: held for key, held in hidden.items() if held}
        return self.row(nodes), self.files(nodes, cpus), hidden

    def settled(self) -> tuple[Json, Json, Json]:
        """Read until two readings agree; a vmcore does not change."""
        before = self.read()
        if not self.prog.flags & ProgramFlags.IS_LIVE:
            return before
        for _ in range(READINGS):
            after = self.read()
            if after == before:
                break
            before = after
        return before

    def nodes(self) -> dict[int, Node]:
        """Read the nodes that can have slabs of the cache."""
        nodes = {}
        for index in for_each_online_node(self.prog):
            if has(self.cache, "per_node"):
                node, barn = (
                    self.cache.per_node[index].node,
                    self.cache.per_node[index].barn,
                )
            else:
                node = self.cache.node[index]
                barn = node.barn if node and has(node, "barn") else None
            if node:
                nodes[index] = Node(
                    slabs=node.nr_slabs.counter.value_(),
                    objects=node.total_objects.counter.value_(),
                    partial=self.partial(node),
                    barn=self.barn(barn) if barn else {},
                )
        return nodes

    def partial(self, node: Object) -> Counter[tuple[int, int]]:
        """Count the slabs on a node's list by objects and free objects."""
        slabs = list_for_each_entry(
            self.slab_type, node.partial.address_of_(), self.list_member
        )
        return Counter((slab.objects.value_(), self.free(slab)) for slab in slabs)

    @staticmethod
    def free(slab: Object) -> int:
        """Count the objects on a slab's own list."""
        return slab.objects.value_() - slab.inuse.value_()

    @staticmethod
    def barn(barn: Object) -> Json:
        """Return the sheaves of a barn."""
        head = barn.sheaves_full.address_of_()
        full = [
            sheaf.size.value_()
            for sheaf in list_for_each_entry("struct slab_sheaf", head, "barn_list")
        ]
        counts = {
            "full_sheaves": len(full),
            "full_sheaf_objects": sum(full),
            "empty_sheaves": barn.nr_empty.value_(),
        }
        return {name: count for name, count in counts.items() if count}

    def cpu(self, index: int) -> Cpu:
        """Read what a CPU holds."""
        cpu = Cpu()
        if has(self.cache, "cpu_slab") and self.cache.cpu_slab:
            held = per_cpu_ptr(self.cache.cpu_slab, index)
            slab = held.slab if has(held, "slab") else held.page
            if slab:
                cpu.slab_free = self.free_list(
                    held.freelist.value_(), slab
                ) + self.free(slab)
            listed = held.partial if has(held, "partial") else None
            # Before 5.16 the list's first slab has what was free when slabs were added.
            if listed and has(listed, "pobjects"):
                cpu.partial_guess = listed.pobjects.value_()
            while listed:
                cpu.partial[self.free(listed)] += 1
                listed = listed.next
        if has(self.cache, "cpu_sheaves") and self.cache.cpu_sheaves:
            sheaves = per_cpu_ptr(self.cache.cpu_sheaves, index)
            for name in ("main", "spare", "rcu_free"):
                sheaf = sheaves.member_(name)
                if sheaf:
                    cpu.sheaves[name] = sheaf.size.value_()
        return cpu

    def free_list(self, first: int, slab: Object) -> int:
        """Count the objects of a CPU's own list, which are all of one slab."""
        objects = slab.objects.value_()
        base = page_to_virt(drgn.cast("struct page *", slab)).value_()
        places = range(base, base + objects * self.size)
        offset, pointer, count = self.cache.offset.value_(), first, 0
        while pointer:
            if pointer not in places or count == objects:
                raise SnapshotError(
                    f"{self.name}: a list of free objects leaves its slab at {pointer:#x}"
                )
            count += 1
            pointer = self.next_free(pointer + offset, places)
        return count

    def next_free(self, at: int, places: range) -> int:
        """Read the pointer to the next free object; hardened kernels encrypt it."""
        stored = self.prog.read_word(at)
        if not has(self.cache, "random"):
            return stored
        stored ^= self.cache.random.value_()
        width = self.prog.address_size()
        # The address takes part with its bytes reversed, before 5.7 as it is.
        for address in (int.from_bytes(at.to_bytes(width, "little"), "big"), at):
            pointer = stored ^ address
            if pointer == 0 or pointer in places:
                return pointer
        raise SnapshotError(
            f"{self.name}: the pointer at {at:#x} is to no object of its slab"
        )

    def row(self, nodes: dict[int, Node]) -> Json:
        """Return the row of slabinfo."""
        slabs = sum(node.slabs for node in nodes.values())
        objects = sum(node.objects for node in nodes.values())
        return {
            "name": self.name,
            "active_objs": objects - sum(node.free() for node in nodes.values()),
            "num_objs": objects,
            "objsize": self.size,
            "objperslab": self.slots,
            "pagesperslab": 1 << self.order,
            "limit": 0,
            "batchcount": 0,
            "sharedfactor": 0,
            "active_slabs": slabs,
            "num_slabs": slabs,
            "sharedavail": 0,
        }

    def files(self, nodes: dict[int, Node], cpus: dict[int, Cpu]) -> Json:
        """Return the files that Quarry reads of the cache's folder in sysfs."""
        cache = self.cache
        used = {index: node.objects - node.free() for index, node in nodes.items()}
        files: Json = {
            "align": cache.align.value_(),
            "aliases": max(cache.refcount.value_() - 1, 0),
            "cpu_partial": cache.cpu_partial.value_()
            if has(cache, "cpu_partial")
            else 0,
            "cpu_slabs": self.cpu_slabs(cpus, list(nodes)),
            "ctor": self.ctor(),
            "min_partial": cache.min_partial.value_(),
            "object_size": cache.object_size.value_(),
            "objects": by_index(used, "N"),
            "objects_partial": by_index(
                {index: node.partial_objects() for index, node in nodes.items()}, "N"
            ),
            "objs_per_slab": self.slots,
            "order": self.order,
            "partial": by_index(
                {index: sum(node.partial.values()) for index, node in nodes.items()},
                "N",
            ),
            "slab_size": self.size,
            "slabs": by_index(
                {index: node.slabs for index, node in nodes.items()}, "N"
            ),
            "slabs_cpu_partial": self.cpu_lists(cpus),
            "total_objects": by_index(
                {index: node.objects for index, node in nodes.items()}, "N"
            ),
        }
        for name in ("sheaf_capacity", "usersize"):
            if has(cache, name):
                files[name] = cache.member_(name).value_()
        for name, (flag, value) in FLAGS.items():
            files[name] = int(bool(cache.flags.value_() & self.flag(flag, value)))
        return {name: str(value) for name, value in files.items()}

    def flag(self, name: str, value: int) -> int:
        """Return a flag: of the types, else the value it had before these have it."""
        try:
            return 1 << self.prog.constant(f"_{name}").value_()
        except LookupError:
            return value

    def ctor(self) -> str:
        """Return the name of the constructor, or nothing."""
        address = self.cache.ctor.value_()
        if not address:
            return ""
        try:
            symbol = self.prog.symbol(address)
        except LookupError:
            return f"{address:#x}"
        return symbol.name

    @staticmethod
    def cpu_slabs(cpus: dict[int, Cpu], nodes: list[int]) -> str:
        """Format the slabs of CPUs and of their lists; by node if there is one."""
        count = sum(
            (cpu.slab_free is not None) + sum(cpu.partial.values())
            for cpu in cpus.values()
        )
        return by_index({nodes[0]: count}, "N") if len(nodes) == 1 else str(count)

    def cpu_lists(self, cpus: dict[int, Cpu]) -> str:
        """Format the slabs on lists of CPUs; from 5.16 on they count as half full."""

        def part(slabs: int, guess: int) -> str:
            return f"{guess or slabs * self.slots // 2}({slabs})"

        lists = {index: sum(cpu.partial.values()) for index, cpu in cpus.items()}
        parts = [
            f" C{index}={part(slabs, cpus[index].partial_guess)}"
            for index, slabs in lists.items()
            if slabs
        ]
        guess = sum(cpu.partial_guess for cpu in cpus.values())
        return part(sum(lists.values()), guess) + "".join(parts)


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


class Pages:
    """The array of struct page, which is read in pieces of a block."""

    def __init__(self, prog: Program, slab_type: Type) -> None:
        """Find what tells pages of slabs, and where their members are."""
        page = prog.type("struct page")
        self.prog = prog
        self.size = page.size
        if prog.address_size() != 8 or self.size % 8:
            raise SnapshotError("struct page is not made of words of 8 bytes")
        is_little = prog.platform.flags & PlatformFlags.IS_LITTLE_ENDIAN
        self.is_swapped = bool(is_little) != (sys.byteorder == "little")
        self.link = offsetof(
            page,
            "compound_info" if page.has_member("compound_info") else "compound_head",
        )
        self.cache = offsetof(slab_type, "slab_cache")
        # Pages have a type where the kernel tells its number to debuggers, else a flag.
        told = re.search(
            r"^NUMBER\(PAGE_SLAB_MAPCOUNT_VALUE\)=(-?\d+)$",
            text(prog["VMCOREINFO"]),
            re.MULTILINE,
        )
        self.type_of_slabs = int(told[1]) & 0xFFFF_FFFF if told else None
        if told:
            self.type = offsetof(page, "_mapcount")
        else:
            self.flag = 1 << prog.constant("PG_slab").value_()
        self.per_block = BLOCK_BYTES // prog["PAGE_SIZE"].value_()
        # Pages that were read, and those that the dump lacks.
        self.read, self.lacking = 0, 0

    def column(self, data: bytes, code: str, offset: int) -> array[int]:
        """Return a member of all pages of a piece."""
        words = array(code, data)
        if self.is_swapped:
            words.byteswap()
        return words[offset // words.itemsize :: self.size // words.itemsize]

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Read all pages: the number of the first of each piece, and the bytes."""
        for start, end, pages in for_each_valid_page_range(self.prog):
            base = pages.value_()
            first = start
            while first < end:
                past = min(end, (first // self.per_block + 1) * self.per_block)
                try:
                    data = self.prog.read(
                        base + first * self.size, (past - first) * self.size
                    )
                except drgn.FaultError:
                    self.lacking += past - first
                else:
                    self.read += past - first
                    yield first, data
                first = past

    def slabs_of(self, data: bytes) -> list[int]:
        """Return the places of first pages of slabs in a piece."""
        if self.type_of_slabs is not None:
            types = self.column(data, "I", self.type)
            return [at for at, type_ in enumerate(types) if type_ == self.type_of_slabs]
        return [
            at
            for at, flags in enumerate(self.column(data, "Q", 0))
            if flags & self.flag and flags != POISONED
        ]

    def slabs(self) -> dict[int, Places]:
        """Return where the pages of slabs lie, by the address of their cache."""
        places: dict[int, Places] = {}
        # The cache whose slab reaches the end of a piece, and the page behind it.
        open_cache, behind = 0, -1
        for first, data in self.pieces():
            heads = self.slabs_of(data)
            carried = open_cache if first == behind else 0
            open_cache, behind = 0, first + len(data) // self.size
            if not heads and not carried:
                continue
            links = self.column(data, "Q", self.link)
            caches = self.column(data, "Q", self.cache)
            starts = [(head, caches[head], head + 1) for head in heads]
            if carried:
                starts.insert(0, (0, carried, 0))
            for start, cache, past in starts:
                # Other pages of a slab are tails: the lowest bit of their link is set.
                while past < len(links) and links[past] & 1:
                    past += 1
                if past > start:
                    block = first // self.per_block
                    places.setdefault(cache, Places()).add(block, past - start)
                if past == len(links):
                    open_cache = cache
        return places


def slab_type_of(prog: Program) -> tuple[Type, str]:
    """Return the type of slabs, a page before 5.17, and the member that links them."""
    for name in ("struct slab", "struct page"):
        try:
            type_ = prog.type(name)
        except LookupError:
            continue
        if type_.has_member("inuse"):
            return type_, "slab_list" if type_.has_member("slab_list") else "lru"
    raise SnapshotError(
        "no type has the slabs of SLUB: is the vmlinux of the kernel that ran?"
    )


def caches_of(prog: Program) -> list[Cache]:
    """Return all caches, or say why they cannot be read."""
    caches = list(for_each_slab_cache(prog))
    for cache in caches[:1]:
        if not has(cache, "oo"):
            raise SnapshotError(
                "the kernel does not use SLUB; crash's kmem -s reads SLAB"
            )
        if has(cache, "memcg_params"):
            raise SnapshotError(
                "the kernel has caches for each memory group (before 5.9); "
                "crash's kmem -s reads them"
            )
        node = prog.type("struct kmem_cache_node")
        if not node.has_member("nr_slabs"):
            raise SnapshotError(
                "the kernel does not count its slabs (CONFIG_SLUB_DEBUG is off)"
            )
    slab_type, list_member = slab_type_of(prog)
    return [Cache(prog, cache, slab_type, list_member) for cache in caches]


def aliases_of(prog: Program) -> dict[str, str]:
    """Return the folder of each name that sysfs has as a link."""
    try:
        folder = prog["slab_kset"].kobj.sd
    except LookupError:
        return {}
    link = prog.constant("KERNFS_LINK")
    return {
        kernfs_name(child).decode(): kernfs_name(child.symlink.target_kn).decode()
        for child in kernfs_children(folder)
        if child.flags & link
    }


def meminfo_of(prog: Program) -> str:
    """Return the lines of meminfo that Quarry reads."""
    page_kb = prog["PAGE_SIZE"].value_() // 1024

    def pages(*names: str) -> int:
        for name in names:
            try:
                return global_node_page_state(prog, prog.constant(name))
            except LookupError:
                continue
        raise SnapshotError(f"the kernel's types have no {names[0]}")

    reclaimable = pages("NR_SLAB_RECLAIMABLE_B", "NR_SLAB_RECLAIMABLE") * page_kb
    unreclaimable = pages("NR_SLAB_UNRECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE") * page_kb
    lines = {
        "MemTotal": totalram_pages(prog) * page_kb,
        "Slab": reclaimable + unreclaimable,
        "SReclaimable": reclaimable,
        "SUnreclaim": unreclaimable,
        "KernelStack": pages("NR_KERNEL_STACK_KB"),
    }
    return "".join(
        f"{name + ':':15} {kilobytes:8} kB\n" for name, kilobytes in lines.items()
    )


def machine_of(prog: Program) -> Json:
    """Return facts about the machine and the kernel."""
    platform = prog.platform
    machine: Json = {
        "cmdline": text(prog["saved_command_line"]).strip(),
        "cpu_online": cpumask_to_cpulist(cpu_online_mask(prog)),
        "cpu_possible": cpumask_to_cpulist(cpu_possible_mask(prog)),
        "cpu_present": cpumask_to_cpulist(cpu_present_mask(prog)),
        "kernel_release": text(prog["UTS_RELEASE"]),
        "meminfo": meminfo_of(prog),
        "monotonic_ns": ktime_get_coarse_ns(prog).value_(),
        "page_size": prog["PAGE_SIZE"].value_(),
        "unix_time_s": ktime_get_real_seconds(prog).value_(),
        "version": text(prog["linux_banner"]).strip(),
    }
    if platform is not None and platform.arch in ARCHITECTURES:
        machine["architecture"] = ARCHITECTURES[platform.arch]
    elif platform is not None and platform.arch == Architecture.PPC64:
        little = platform.flags & PlatformFlags.IS_LITTLE_ENDIAN
        machine["architecture"] = "ppc64le" if little else "ppc64"
    boot_id = variable(prog, "sysctl_bootid")
    # It is made when somebody reads it.
    if boot_id is not None and any(boot_id):
        machine["boot_id"] = str(uuid.UUID(bytes=bytes(boot_id)))
    sysctls = {name: variable(prog, of) for name, of in SYSCTLS.items()}
    machine["sysctls"] = {
        name: "\t".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in sysctls.items()
        if value is not None
    }
    return machine


def variable(prog: Program, name: str) -> Any:
    """Return the value of a variable that some kernels have."""
    try:
        return prog[name].value_()
    except LookupError:
        return None


def say(what: str) -> None:
    """Print a line for the user."""
    print(f"quarry_snapshot: {what}", file=sys.stderr)


def slab_blocks_of(prog: Program, caches: list[Cache]) -> Json:
    """Return where the pages of each cache lie, or say why it is not told."""
    began = time.monotonic()
    try:
        pages = Pages(prog, slab_type_of(prog)[0])
        places = pages.slabs()
    except (LookupError, SnapshotError) as error:
        say(f"left out where slabs lie, as pages of slabs cannot be told: {error}")
        return {}
    names = {cache.cache.value_(): cache.name for cache in caches}
    others = sum(sum(places[at].pages) for at in places.keys() - names.keys())
    gib = pages.read * BLOCK_BYTES / pages.per_block / (1 << 30)
    say(
        f"read struct page of {gib:.1f} GiB in {time.monotonic() - began:.1f} s"
        + (f"; the dump lacks those of {pages.lacking} pages" if pages.lacking else "")
        + (f"; {others} pages of slabs are of no cache in the list" if others else "")
    )
    runs = {names[at]: found.runs() for at, found in places.items() if at in names}
    return {"slab_blocks": {"block_bytes": BLOCK_BYTES, "caches": runs}}


def map_of(file: str, boot_id: str | None) -> Json:
    """Return the map of memory that another snapshot of the same boot has."""
    told = json.loads(Path(file).read_text())
    if "blocks" not in told:
        raise SnapshotError(f"{file} has no map of memory (quarry snapshot, as root)")
    if told.get("boot_id") != boot_id:
        raise SnapshotError(f"{file} is of another boot: {told.get('boot_id')}")
    return {key: told[key] for key in ("blocks", "pagetypeinfo") if key in told}


def snapshot(prog: Program, map_file: str | None) -> Json:
    """Return the snapshot."""
    machine = machine_of(prog)
    if map_file is not None:
        machine |= map_of(map_file, machine.get("boot_id"))
    rows, files, hidden = [], {}, {}
    caches = caches_of(prog)
    for cache in caches:
        row, sysfs, held = cache.settled()
        rows.append(row)
        if has(cache.cache, "kobj") and cache.cache.kobj.name:
            files[text(cache.cache.kobj.name)] = sysfs
        hidden[cache.name] = held
    return {
        **machine,
        **slab_blocks_of(prog, caches),
        "slabinfo": rows,
        "sysfs_slab": files,
        "sysfs_aliases": aliases_of(prog),
        "hidden": {"read_by": f"drgn {drgn.__version__}", "caches": hidden},
    }


def main() -> None:
    """Print the snapshot of the program that drgn debugs."""
    try:
        map_file = sys.argv[1] if len(sys.argv) > 1 else None
        found = snapshot(drgn.get_default_prog(), map_file)
    except LookupError as error:
        sys.exit(
            f"quarry_snapshot: {error}: debugging symbols of the kernel that ran are "
            "needed; give its vmlinux to drgn with -s"
        )
    except (SnapshotError, drgn.FaultError, OSError, ValueError) as error:
        sys.exit(f"quarry_snapshot: {error}")
    json.dump(found, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
