"""Keywords of questions, for type checkers and editors. Written by a test of kquarry-lab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict, TypeVar

T = TypeVar("T")
Several: TypeAlias = T | Iterable[T]
Settings: TypeAlias = str | Iterable[str] | Mapping[str, int | str | Sequence[int | str]]


class WhatIf(TypedDict, total=False):
    """Keywords of Snapshot.what_if and of sweeps."""

    #: Stage of a recorded boot; the first by default.
    stage: Several[str] | None
    #: Snapshot of a trace: what the kernel held at the begin or at the end of the load; the last
    #: it has by default.
    at: Several[Literal["begin", "end"]] | None
    #: The release of the snapshot's kernel, if its file does not have it.
    kernel: Several[str] | None
    #: CPUs that the snapshot's machine has, if its file does not have them.
    had_cpus: Several[int] | None
    #: Page size of the snapshot's machine, if its file does not have it: 4k, 16k, 64k.
    had_page_size: Several[int | str] | None
    #: Answer although the formulas give fewer than 70 % of the caches their slabs.
    force: bool | None
    #: Other releases of Linux, 2.6.22 or later, each with the design and the rules that it has.
    release: Several[str] | None
    #: Other designs or eras, separated by commas; the snapshot's own by default.
    design: Several[str] | None
    #: Other page sizes: 4k, 16k, 64k, separated by commas.
    page_size: Several[int | str] | None
    #: Other numbers of possible CPUs (nr_cpu_ids), which eras until 5.9 choose orders by. Each
    #: brings objects, whose number is a guess. As many as the snapshot has by default.
    possible_cpus: Several[int] | None
    #: Other numbers of CPUs, separated by commas; present and possible ones.
    cpus: Several[int] | None
    #: Set a tunable; may be repeated. `quarry tunables` lists them. A list, cpu_partial=0,6,13,
    #: has a prediction for each value beside the one without; several lists have one for each
    #: combination. slub_debug=FZP asks for the snapshot with other debugging, slub_debug= for it
    #: without.
    set: Settings | None
    #: Add what an option of the kernel's configuration costs or saves, such as MEMCG=n or
    #: RANDOM_KMALLOC_CACHES=y; may be repeated.
    config: Several[str] | None
    #: Add up this many guests, each with such a kernel: they share no slab. What each boot has by
    #: chance evens out.
    guests: Several[int] | None


class Replay(TypedDict, total=False):
    """Keywords of Recording.replay and of sweeps."""

    #: Replay in simulated time: what an allocation and a free cost in nanoseconds, and why. The
    #: page size is the recorded one by default, slob is left out (its searches take minutes to
    #: simulate), and the cache line is the machine's.
    time: bool | None
    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: When events happen: at their recorded times, and where a CPU is late as fast as it can; or
    #: all as fast as the CPUs can.
    pace: Several[Literal["recorded", "full"]] | None
    #: Beginning of each run: what the recorded kernel held if the recording says it (usual),
    #: nothing (empty), or what the recording's reports say (initial), which the end is compared
    #: with (check).
    start: Several[Literal["usual", "empty", "initial", "check"]] | None
    #: Page events on the same page allocator: auto replays those outside the slabs if the trace
    #: tells which pages were slabs, all those of slabs too, off none.
    pages: Several[Literal["auto", "off", "all"]] | None
    #: Replay events from this time on: seconds as recorded, or +SECONDS after the first event. The
    #: part begins empty.
    from_: Several[float | str] | None
    #: Replay events before this time.
    until: Several[float | str] | None
    #: Begin on the heap of a real kernel that has run: one bundled report for all designs, the
    #: nearest to their releases.
    booted: bool | None
    #: Begin on the heap of another machine: a snapshot, FILE#STAGE for a stage of one, or a
    #: recording with one.
    heap: Several[str] | None
    #: Slabs that share the free places which the report does not place: few (each is nearly
    #: empty), many (each has few free places), or expected.
    partial_slabs: Several[Literal["expected", "few", "many"]] | None
    #: Memory of each virtual machine; 16G by default. With --initial that of the kernel's zones by
    #: default, and more or less of it is the highest zone's. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
    cache_line: Several[int | str] | None
    #: A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
    #: and later heed it when blocks of several pages are freed.
    cache_share: Several[int | str] | None
    #: Debugging as in the kernel's slub_debug: FZPU for all caches, FZ,kmalloc-*;U,dentry for
    #: some.
    debug: Several[str] | None
    #: Designs with optional eras, separated by commas; with --initial or --check the recorded one
    #: by default, else five. These are slab, slob and slub of 6.3, the last release that has all
    #: three, slub of 6.17, the last without sheaves, and sheaf of 7.0, which has them in all
    #: caches. The recorded one comes first, in place of the nearest; 6.18 is sheaf@6.18, as some
    #: of its caches have sheaves. Older ones, and slubq of 2.6.35, are shown if they are named.
    design: Several[str] | None
    #: Page sizes: 4k, 16k, 64k, separated by commas; 4k,64k by default, the recorded one with
    #: --initial or --check.
    page_size: Several[int | str] | None
    #: Policies of the page allocator, side by side: release for the release's rules, defrag,
    #: steer; +block=N for pageblocks of 2^N pages, +no_highatomic for no reserves. The report then
    #: says where pages lie.
    policy: Several[str] | None
    #: CPUs of the virtual machine, 1 to 4096; several separated by commas; the trace's by default.
    cpus: Several[int] | None
    #: Replay N independent copies of the recorded load, each on CPUs of its own: copy k of
    #: recorded CPU c is CPU k * recorded CPUs + c. Every machine has as many CPUs by default, and
    #: at least as many.
    copies: Several[int] | None
    #: Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
    #: a sysctl of the page allocator: page.min_free_kbytes=8192. A list, cpu_partial=0,6,13, has a
    #: run for each value beside the default; several lists have one for each combination.
    set: Settings | None


class Hackbench(TypedDict, total=False):
    """Keywords of run for hackbench, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Begin on the heap of a real kernel that has run: one bundled report for all designs, the
    #: nearest to their releases.
    booted: bool | None
    #: Begin on the heap of a machine that has run: a snapshot, FILE#STAGE for a stage of one, or a
    #: recording with one, of any kernel.
    heap: Several[str] | None
    #: Slabs that share the free places which the report does not place: few (each is nearly
    #: empty), many (each has few free places), or expected.
    partial_slabs: Several[Literal["expected", "few", "many"]] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Release whose rules designs without one have.
    era: Several[str] | None
    #: Designs, each with an era of its own or that of --era. Without it, the designs of a thread
    #: about the load.
    design: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs; all of the machine by default.
    cpus: Several[int] | None
    #: Groups of senders and receivers.
    groups: Several[int] | None
    #: Descriptors: senders of a group, and receivers.
    fds: Several[int] | None
    #: Messages that a sender writes to each receiver of its group.
    loops: Several[int] | None
    #: Bytes of a message.
    datasize: Several[int | str] | None
    #: Sockets: unix, datagram (at most 11 messages wait for a receiver, where a stream has some
    #: hundred) or pipe.
    transport: Several[Literal["unix", "datagram", "pipe"]] | None
    #: Count the start, too. By default counting begins when nine of ten receivers of hackbench
    #: have read a full socket, on top of the messages that are asked for; after a fifth of
    #: tbench's time, as its program does; after a tenth of TCP_RR's, whose program counts all of
    #: 10 seconds.
    count_start: bool | None
    #: Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5),
    #: deadline (later). By default as in the era.
    wake_order: Several[Literal["immediate", "queued", "fair", "deadline"]] | None
    #: CPU on which a woken task runs: previous, affine, idle. By default as in the era.
    wake_place: Several[Literal["previous", "affine", "idle"]] | None
    #: Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
    #: select-size (an experiment). By default as in the era.
    skb_sizes: Several[Literal["old", "bug", "fixed", "select-size"]] | None
    #: Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
    at: Several[str] | None
    #: Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
    #: slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
    set: Settings | None


class Tbench(TypedDict, total=False):
    """Keywords of run for tbench, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Begin on the heap of a real kernel that has run: one bundled report for all designs, the
    #: nearest to their releases.
    booted: bool | None
    #: Begin on the heap of a machine that has run: a snapshot, FILE#STAGE for a stage of one, or a
    #: recording with one, of any kernel.
    heap: Several[str] | None
    #: Slabs that share the free places which the report does not place: few (each is nearly
    #: empty), many (each has few free places), or expected.
    partial_slabs: Several[Literal["expected", "few", "many"]] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Release whose rules designs without one have.
    era: Several[str] | None
    #: Designs, each with an era of its own or that of --era. Without it, the designs of a thread
    #: about the load.
    design: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs; all of the machine by default.
    cpus: Several[int] | None
    #: Clients, each with a server.
    clients: Several[int] | None
    #: Time that is counted, after a fifth of it: 50ms of simulated time, or 2s with --host.
    time: Several[float | str] | None
    #: Count the start, too. By default counting begins when nine of ten receivers of hackbench
    #: have read a full socket, on top of the messages that are asked for; after a fifth of
    #: tbench's time, as its program does; after a tenth of TCP_RR's, whose program counts all of
    #: 10 seconds.
    count_start: bool | None
    #: Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5),
    #: deadline (later). By default as in the era.
    wake_order: Several[Literal["immediate", "queued", "fair", "deadline"]] | None
    #: CPU on which a woken task runs: previous, affine, idle. By default as in the era.
    wake_place: Several[Literal["previous", "affine", "idle"]] | None
    #: Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
    #: select-size (an experiment). By default as in the era.
    skb_sizes: Several[Literal["old", "bug", "fixed", "select-size"]] | None
    #: Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
    at: Several[str] | None
    #: Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
    #: slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
    set: Settings | None


class TcpRr(TypedDict, total=False):
    """Keywords of run for tcp_rr, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Begin on the heap of a real kernel that has run: one bundled report for all designs, the
    #: nearest to their releases.
    booted: bool | None
    #: Begin on the heap of a machine that has run: a snapshot, FILE#STAGE for a stage of one, or a
    #: recording with one, of any kernel.
    heap: Several[str] | None
    #: Slabs that share the free places which the report does not place: few (each is nearly
    #: empty), many (each has few free places), or expected.
    partial_slabs: Several[Literal["expected", "few", "many"]] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Release whose rules designs without one have.
    era: Several[str] | None
    #: Designs, each with an era of its own or that of --era. Without it, the designs of a thread
    #: about the load.
    design: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs; all of the machine by default.
    cpus: Several[int] | None
    #: Pairs of a netperf and a netserver.
    pairs: Several[int] | None
    #: Bytes of a request.
    request: Several[int | str] | None
    #: Bytes of a response.
    response: Several[int | str] | None
    #: The servers are on another machine, which is not simulated: packets come to CPU 0.
    remote: bool | None
    #: Way of a request to the other machine and of its answer, without waits for interrupts.
    round_trip: Several[float | str] | None
    #: Queues of the card, on CPUs 0 to N-1.
    queues: Several[int] | None
    #: Time from an interrupt of a queue to its next one, at least, on both machines.
    interrupt_every: Several[float | str] | None
    #: Work of the card's driver for a packet.
    packet: Several[float | str] | None
    #: Time that is counted, after a tenth of it: 50ms of simulated time, or 2s with --host.
    time: Several[float | str] | None
    #: Count the start, too. By default counting begins when nine of ten receivers of hackbench
    #: have read a full socket, on top of the messages that are asked for; after a fifth of
    #: tbench's time, as its program does; after a tenth of TCP_RR's, whose program counts all of
    #: 10 seconds.
    count_start: bool | None
    #: Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5),
    #: deadline (later). By default as in the era.
    wake_order: Several[Literal["immediate", "queued", "fair", "deadline"]] | None
    #: CPU on which a woken task runs: previous, affine, idle. By default as in the era.
    wake_place: Several[Literal["previous", "affine", "idle"]] | None
    #: Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
    #: select-size (an experiment). By default as in the era.
    skb_sizes: Several[Literal["old", "bug", "fixed", "select-size"]] | None
    #: Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
    at: Several[str] | None
    #: Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
    #: slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
    set: Settings | None


class WillItScale(TypedDict, total=False):
    """Keywords of run for will-it-scale, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Begin on the heap of a real kernel that has run: one bundled report for all designs, the
    #: nearest to their releases.
    booted: bool | None
    #: Begin on the heap of a machine that has run: a snapshot, FILE#STAGE for a stage of one, or a
    #: recording with one, of any kernel.
    heap: Several[str] | None
    #: Slabs that share the free places which the report does not place: few (each is nearly
    #: empty), many (each has few free places), or expected.
    partial_slabs: Several[Literal["expected", "few", "many"]] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Release whose rules designs without one have.
    era: Several[str] | None
    #: Designs, each with an era of its own or that of --era. Without it, the designs of a thread
    #: about the load.
    design: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs; all of the machine by default.
    cpus: Several[int] | None
    #: Tests: page_fault1, page_fault2 (a private mapping of a file), mmap1, brk1, open1.
    test: Several[Literal["page_fault1", "page_fault2", "mmap1", "brk1", "open1"]] | None
    #: Processes.
    tasks: Several[int] | None
    #: Pages that a process of page_fault1 and page_fault2 maps.
    pages: Several[int] | None
    #: Time that is counted, after a tenth of it.
    time: Several[float | str] | None
    #: Count the start, too. By default counting begins when nine of ten receivers of hackbench
    #: have read a full socket, on top of the messages that are asked for; after a fifth of
    #: tbench's time, as its program does; after a tenth of TCP_RR's, whose program counts all of
    #: 10 seconds.
    count_start: bool | None
    #: Moment at which a woken task runs: immediate (2.6.22), queued (2.6.23), fair (to 6.5),
    #: deadline (later). By default as in the era.
    wake_order: Several[Literal["immediate", "queued", "fair", "deadline"]] | None
    #: CPU on which a woken task runs: previous, affine, idle. By default as in the era.
    wake_place: Several[Literal["previous", "affine", "idle"]] | None
    #: Sizes of TCP's buffers up to 2.6.26: old (2.6.23), bug (2.6.24-rc2), fixed (2.6.24),
    #: select-size (an experiment). By default as in the era.
    skb_sizes: Several[Literal["old", "bug", "fixed", "select-size"]] | None
    #: Set a tunable of one cache while the load runs; may be repeated. At 0s it is set before.
    at: Several[str] | None
    #: Set a tunable of all caches; may be repeated. For one design: slub.cpu_partial=0,
    #: slub@6.1.cpu_partial=0; a sysctl of the page allocator: page.min_free_kbytes=8192.
    set: Settings | None


class Micro(TypedDict, total=False):
    """Keywords of run for micro, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Designs, each with an era.
    design: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs that do it at the same time, all on one cache.
    cpus: Several[int] | None
    #: Patterns: batch, pair, cross, spread, bulk.
    pattern: Several[Literal["batch", "pair", "cross", "spread", "bulk"]] | None
    #: Bytes of an object.
    size: Several[int | str] | None
    #: Allocate with kmalloc() of the size, as slab_test does, and not from a cache of this size.
    #: Not with pattern bulk.
    kmalloc: bool | None
    #: Objects that each CPU allocates and frees in a round.
    count: Several[int] | None
    #: Objects of a call, for pattern bulk: 1 to 1024.
    bulk: Several[int] | None
    #: Rounds that are counted, after one that fills caches and lists.
    rounds: Several[int] | None
    #: Ask for objects of this node's memory, as kmalloc_node() does; by default of the running
    #: CPU's. The machine then has all of its CPUs, and the first ones do it. Not with pattern
    #: bulk.
    node: Several[int] | None
    #: Memory of a node that is free before the run, as numactl --hardware shows it: 1:256M. Others
    #: use the rest; may be repeated. Nodes have equal parts of --memory.
    node_free: Several[str] | None
    #: Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
    #: a sysctl of the page allocator: page.min_free_kbytes=8192.
    set: Settings | None


class Pages(TypedDict, total=False):
    """Keywords of run for pages, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: Release of Linux with the page allocator to use: 2.6.22 or later.
    era: Several[str] | None
    #: Page size: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: Processes, each on a CPU of its own.
    processes: Several[int] | None
    #: Pages that each process faults in and frees in a round.
    pages: Several[int] | None
    #: Rounds that each process ends while counting, after one in step and one out of step.
    rounds: Several[int] | None
    #: Let a process move to another CPU after this many pages that it touches or frees, in the
    #: mean; one more than there are CPUs waits for one. By default none moves.
    move_every: Several[int] | None
    #: Keep pages on lists for reclaim (LRU), whose lock is taken for batches of pages. By default
    #: they are left out.
    lru: bool | None
    #: Set a sysctl of the page allocator; may be repeated.
    set: Settings | None


class Rx(TypedDict, total=False):
    """Keywords of run for rx, and of sweeps."""

    #: Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the
    #: CPUs: a part of a socket, or whole sockets.
    machine: Several[str] | None
    #: Draw of the machine's constants in their ranges; 0 are their values.
    draw: Several[int] | None
    #: Decides what is left to chance, such as which of several waiting CPUs is first.
    seed: Several[int] | None
    #: Sources of the receive queues' pages: small, none, huge, pool, shipped.
    driver: Several[str] | None
    #: Numbers of receive rings; ring i is served by CPU i.
    rings: Several[int] | None
    #: Release of Linux with the page allocator, page cache and socket buffers to use: 2.6.22 or
    #: later.
    era: Several[str] | None
    #: Packets that each run counts; with its warm-up at most 1000000000000. 10000 by default, and
    #: 20000 with --sensitivity; 300000 take minutes and give a digit more.
    packets: Several[int] | None
    #: CPUs that read streams: their ring's CPU (same), CPUs without a ring (other), or all CPUs
    #: alike (spread).
    consumer: Several[Literal["same", "other", "spread"]] | None
    #: Page sizes: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs of the virtual machine.
    cpus: Several[int] | None
    #: Bytes of a packet; all packets are full.
    mtu: Several[int] | None
    #: TCP streams, dealt to the rings round: as many as rings, to 1048576.
    streams: Several[int] | None
    #: Packets that wait in a socket before it is read: 60 are the default receive buffer of TCP; 1
    #: to 1048576.
    backlog: Several[int] | None
    #: Work entries of a ring.
    descriptors: Several[int] | None
    #: Entries of the page cache of driver huge, a power of two; the thread does not tell its size.
    cache_entries: Several[int] | None
    #: Memory of each virtual machine. Only what is used becomes resident.
    memory: Several[int | str] | None
    #: A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
    #: and later heed it when blocks of several pages are freed.
    cache_share: Several[int | str] | None


class Look(TypedDict, total=False):
    """Keywords of look, and of sweeps."""

    #: Stage of a recorded boot; the first by default. A list has a snapshot for each.
    stage: Several[str] | None
    #: Snapshot of a trace: what the kernel held at the begin or at the end of the load; by default
    #: the last it has, and what grew since the first.
    at: Several[Literal["begin", "end"]] | None
    #: The release of the snapshot's kernel, if its file does not have it.
    kernel: Several[str] | None
    #: CPUs that the snapshot's machine has, if its file does not have them.
    had_cpus: Several[int] | None
    #: Page size of the snapshot's machine, if its file does not have it: 4k, 16k, 64k.
    had_page_size: Several[int | str] | None


class Geometry(TypedDict, total=False):
    """Keywords of geometry, and of sweeps."""

    #: Designs, each with an era.
    design: Several[str] | None
    #: Page sizes: 4k, 16k, 64k.
    page_size: Several[int | str] | None
    #: CPUs of the machine.
    cpus: Several[int] | None
    #: Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
    cache_line: Several[int | str] | None
    #: Bytes of an object.
    object_size: Several[int | str] | None
    #: Alignment of an object in bytes, a power of two; 0 for the default.
    align: Several[int | str] | None
    #: Properties of the cache: hwcache, rcu, ctor, reclaim, freeptr, separated by commas.
    flags: Several[str] | None
    #: Set a tunable; may be repeated. `quarry tunables` lists them. A list has a row for each
    #: value.
    set: Settings | None
