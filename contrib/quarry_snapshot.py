#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write a snapshot of slab caches for Quarry, from a vmcore or the live kernel.

    drgn -c vmcore -s vmlinux quarry_snapshot.py > snapshot.json
    sudo drgn quarry_snapshot.py > snapshot.json

The output is what `quarry snapshot` writes, and two keys more. "hidden" has free
objects that the kernel counts as active, in the slabs of CPUs, on their partial lists,
in sheaves and in barns. "slab_blocks" has the pages of each cache in each 2 MiB of
memory: "5-7:512 9:3" are 512 pages in each of the blocks 5 to 7, and 3 in block 9.

The script needs quarry_pages.py beside it, drgn 0.3, and the kernel's debugging symbols.
Kernels with SLUB from 5.9 on are read, by the members that their types have, not by
release.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from dataclasses import dataclass, field
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
from drgn.helpers.linux.mm import page_to_virt, totalram_pages
from drgn.helpers.linux.nodemask import for_each_online_node
from drgn.helpers.linux.percpu import per_cpu_ptr
from drgn.helpers.linux.slab import for_each_slab_cache
from drgn.helpers.linux.timekeeping import ktime_get_coarse_ns, ktime_get_real_seconds
from drgn.helpers.linux.vmstat import global_node_page_state
from quarry_pages import blocks_of

Json = dict[str, Any]

# Readings of a live cache until two agree.
READINGS = 5

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


def snapshot(prog: Program) -> Json:
    """Return the snapshot."""
    rows, files, hidden = [], {}, {}
    caches = caches_of(prog)
    named = [(cache.name, cache.cache) for cache in caches]
    blocks = blocks_of(prog, slab_type_of(prog)[0], named)
    for cache in caches:
        row, sysfs, held = cache.settled()
        rows.append(row)
        if has(cache.cache, "kobj") and cache.cache.kobj.name:
            files[text(cache.cache.kobj.name)] = sysfs
        hidden[cache.name] = held
    return {
        **machine_of(prog),
        **blocks,
        "slabinfo": rows,
        "sysfs_slab": files,
        "sysfs_aliases": aliases_of(prog),
        "hidden": {"read_by": f"drgn {drgn.__version__}", "caches": hidden},
    }


def main() -> None:
    """Print the snapshot of the program that drgn debugs."""
    try:
        found = snapshot(drgn.get_default_prog())
    except LookupError as error:
        sys.exit(
            f"quarry_snapshot: {error}: debugging symbols of the kernel that ran are "
            "needed; give its vmlinux to drgn with -s"
        )
    except (SnapshotError, drgn.FaultError) as error:
        sys.exit(f"quarry_snapshot: {error}")
    json.dump(found, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
