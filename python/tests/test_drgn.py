"""contrib/quarry_snapshot.py on a stub of drgn: it writes the snapshot that a kernel holds."""

import enum
import gzip
import itertools
import json
import runpy
import sys
import uuid
from types import ModuleType, SimpleNamespace

import pytest
from conftest import ROOT

SCRIPT = ROOT / "contrib/quarry_snapshot.py"
RECORDED = ROOT / "crates/quarry-snapshot/tests/data/drgn"
RANDOM = 0x5A170F2B93C4D861
FIRST_SLAB = 0xFFFF888000000000
STATES = {
    "NR_SLAB_RECLAIMABLE_B": "SReclaimable",
    "NR_SLAB_UNRECLAIMABLE_B": "SUnreclaim",
    "NR_KERNEL_STACK_KB": "KernelStack",
}
KERNFS_LINK = 4

Kind = enum.Enum("Kind", "POINTER TYPEDEF STRUCT UNION INT")


class Object:
    """An object of the kernel: a structure is a dict, an array a list, a null pointer None."""

    def __init__(self, held, address=0):
        self.held, self.address = held, address

    def __getattr__(self, name):
        if isinstance(self.held, dict) and name in self.held:
            return self[name]
        raise AttributeError(name)

    def __getitem__(self, at):
        held = self.held[at]
        return held if isinstance(held, Object) else Object(held)

    def __bool__(self):
        return bool(self.held)

    def __and__(self, bits):
        return self.held & bits

    @property
    def type_(self):
        kind = Kind.STRUCT if isinstance(self.held, dict) else Kind.INT
        return SimpleNamespace(kind=kind, has_member=self.held.__contains__)

    def member_(self, name):
        return getattr(self, name)

    def value_(self):
        return self.held

    def string_(self):
        return self.held.encode()

    def address_of_(self):
        return self


class Kernel:
    """The program that drgn debugs."""

    flags = 0

    def __init__(self, told, flags):
        self.told, self.bits = told, flags
        self.release = tuple(map(int, told["kernel_release"].split(".")[:2]))
        self.words, self.symbols = {}, {}
        self.slabs = itertools.count(FIRST_SLAB, 1 << 20)
        self.caches = [Object(self.cache(row)) for row in told["slabinfo"]]
        lines = (line.replace(":", "").split() for line in told["meminfo"].splitlines())
        self.kilobytes = {name: int(kilobytes) for name, kilobytes, _ in lines}
        self.platform = SimpleNamespace(arch="x86_64")
        links = [
            {"flags": KERNFS_LINK, "name": name, "symlink": {"target_kn": {"name": of}}}
            for name, of in told["sysfs_aliases"].items()
        ]
        folder = [*links, {"flags": 1, "name": "dentry"}]
        self.variables = {
            "PAGE_SIZE": told["page_size"],
            "UTS_RELEASE": told["kernel_release"],
            "linux_banner": told["version"] + "\n",
            "saved_command_line": told["cmdline"],
            "slab_kset": {"kobj": {"sd": folder}},
            "sysctl_bootid": list(uuid.UUID(told["boot_id"]).bytes),
        }
        for name, text in told["sysctls"].items():
            name = name.removeprefix("vm.")
            values = [int(value) for value in text.split("\t")]
            is_list = name == "lowmem_reserve_ratio"
            self.variables["sysctl_" * is_list + name] = values if is_list else values[0]

    def __getitem__(self, name):
        return Object(self.variables[name])

    def type(self, name):
        slab = "struct slab" if self.release >= (5, 17) else "struct page"
        if name == "struct slab" != slab:
            raise LookupError(name)
        members = {slab: {"inuse", "slab_list"}, "struct kmem_cache_node": {"nr_slabs"}}
        return SimpleNamespace(has_member=members.get(name, set()).__contains__)

    def constant(self, name):
        known = {**STATES, "KERNFS_LINK": KERNFS_LINK}
        if self.release >= (6, 9):
            known |= {f"_{of}": Object(bit.bit_length() - 1) for of, bit in self.bits.values()}
        return known[name]

    def symbol(self, address):
        return SimpleNamespace(name=self.symbols[address])

    def read_word(self, at):
        return self.words[at]

    def address_size(self):
        return 8

    def cache(self, row):
        """Returns a cache of its row of slabinfo, its files of sysfs, and what both hide."""
        folder = self.told["sysfs_aliases"].get(row["name"], row["name"])
        files, hidden = self.told["sysfs_slab"][folder], self.told["hidden"]["caches"][row["name"]]
        constructor = files["ctor"] and len(self.symbols) + 1
        self.symbols[constructor] = files["ctor"]
        cache = {
            "name": row["name"],
            "size": row["objsize"],
            "oo": {"x": (row["pagesperslab"].bit_length() - 1 << 16) + row["objperslab"]},
            "offset": 0,
            "random": RANDOM,
            "refcount": int(files["aliases"]) + 1,
            "ctor": constructor or 0,
            "flags": sum(bit for name, (_, bit) in self.bits.items() if files[name] == "1"),
            "kobj": {"name": folder},
        }
        same = ("align", "cpu_partial", "min_partial", "object_size", "sheaf_capacity", "usersize")
        cache |= {name: int(files[name]) for name in same if name in files}
        nodes, cpus = hidden.get("nodes", {}), hidden.get("cpus", {})
        node, barn = self.node(row, files, nodes.get("0", {}))
        held = [cpus.get(str(cpu), {}) for cpu in range(4)]
        if self.release >= (7, 0):
            kinds = ("main", "spare", "rcu_free")
            sizes = [{kind: cpu.get(kind) for kind in kinds} for cpu in held]
            sheaves = [
                {kind: size if size is None else {"size": size} for kind, size in cpu.items()}
                for cpu in sizes
            ]
            return cache | {"per_node": [{"node": node, "barn": barn}], "cpu_sheaves": sheaves}
        guesses = dict(part[1:].split("=") for part in files["slabs_cpu_partial"].split()[1:])
        slabs = [self.cpu_slab(row, cpu, guesses.get(str(at), "0(")) for at, cpu in enumerate(held)]
        return cache | {"node": [node], "cpu_slab": slabs}

    def node(self, row, files, hidden):
        partial = self.with_free(row, hidden.get("partial", {}))
        # A slab of a lower order has fewer objects, and sysfs has the sum of all.
        if more := sum(slab["inuse"] for slab in partial) - int(
            files["objects_partial"].split()[0]
        ):
            slab = max(partial, key=lambda slab: slab["inuse"])
            slab |= {name: slab[name] - more for name in ("inuse", "objects")}
        full, objects = hidden.get("full_sheaves", 0), hidden.get("full_sheaf_objects", 0)
        sheaves = [{"size": objects // full + (at < objects % full)} for at in range(full)]
        node = {"nr_slabs": {"counter": row["num_slabs"]}, "partial": partial}
        node["total_objects"] = {"counter": row["num_objs"]}
        return node, {"sheaves_full": sheaves, "nr_empty": hidden.get("empty_sheaves", 0)}

    @staticmethod
    def with_free(row, counts):
        objects = row["objperslab"]
        frees = [int(free) for free, slabs in counts.items() for _ in range(slabs)]
        return [{"objects": objects, "inuse": objects - free} for free in frees]

    def cpu_slab(self, row, hidden, guess):
        """Returns what a CPU has: half of its slab's free objects are on a list of its own."""
        slab, own = None, []
        if (free := hidden.get("slab_free")) is not None:
            address, objects = next(self.slabs), row["objperslab"]
            own = [address + place * row["objsize"] for place in range(free // 2)]
            slab = Object({"objects": objects, "inuse": objects - (free - len(own))}, address)
            for at, following in itertools.zip_longest(own, own[1:], fillvalue=0):
                swapped = int.from_bytes(at.to_bytes(8, "little"), "big")
                self.words[at] = RANDOM ^ swapped ^ following
        listed = None
        for of in self.with_free(row, hidden.get("partial", {})):
            listed = of | {"next": listed}
            if self.release < (5, 16):
                listed["pobjects"] = int(guess.split("(")[0])
        name = "slab" if self.release >= (5, 17) else "page"
        return {name: slab, "freelist": own[0] if own else 0, "partial": listed}


def drgn(kernel, told):
    """Returns modules of the names that the script imports."""
    linux = {
        "kernfs": {"kernfs_children": list, "kernfs_name": lambda of: of.name.string_()},
        "list": {"list_for_each_entry": lambda of, head, member: head},
        "mm": {
            "page_to_virt": lambda slab: Object(slab.address),
            "totalram_pages": lambda prog: kernel.kilobytes["MemTotal"] * 1024 // told["page_size"],
        },
        "nodemask": {"for_each_online_node": lambda prog: [0]},
        "percpu": {"per_cpu_ptr": lambda of, cpu: of[cpu]},
        "slab": {"for_each_slab_cache": lambda prog: kernel.caches},
        "timekeeping": {
            "ktime_get_coarse_ns": lambda prog: Object(told["monotonic_ns"]),
            "ktime_get_real_seconds": lambda prog: Object(told["unix_time_s"]),
        },
        "vmstat": {"global_node_page_state": lambda prog, of: pages(kernel, of)},
        "cpumask": {
            "cpumask_to_cpulist": lambda mask: mask,
            "for_each_possible_cpu": lambda prog: range(4),
            **{
                f"cpu_{of}_mask": lambda prog, of=of: told[f"cpu_{of}"]
                for of in ("online", "possible", "present")
            },
        },
    }
    names = "X86_64 AARCH64 S390X RISCV64 PPC64"
    root = {
        "Architecture": SimpleNamespace(**{name: name.lower() for name in names.split()}),
        "Object": Object,
        "Program": Kernel,
        "Type": SimpleNamespace,
        "TypeKind": Kind,
        "PlatformFlags": SimpleNamespace(IS_LITTLE_ENDIAN=2),
        "ProgramFlags": SimpleNamespace(IS_LIVE=2),
        "FaultError": MemoryError,
        "cast": lambda name, of: of,
        "get_default_prog": lambda: kernel,
        "__version__": told["hidden"]["read_by"].removeprefix("drgn "),
    }
    members = {"drgn": root, "drgn.helpers": {}, "drgn.helpers.linux": {}}
    members |= {f"drgn.helpers.linux.{name}": held for name, held in linux.items()}
    members["quarry_pages"] = {"blocks_of": lambda prog, slab_type, caches: {}}
    modules = {name: ModuleType(name) for name in members}
    for name, held in members.items():
        vars(modules[name]).update(held)
    return modules


def pages(kernel, state):
    kilobytes = kernel.kilobytes[state]
    return kilobytes if state == "KernelStack" else kilobytes * 1024 // kernel.told["page_size"]


def run(kernel, told, monkeypatch, name):
    with monkeypatch.context() as patch:
        for module, held in drgn(kernel, told).items():
            patch.setitem(sys.modules, module, held)
        return runpy.run_path(str(SCRIPT), run_name=name)


@pytest.mark.parametrize("release", ["5.10", "6.1", "6.12", "7.3"])
def test_the_script_writes_what_the_kernel_holds(release, monkeypatch, capsys):
    with gzip.open(RECORDED / f"{release}-drgn.json.gz") as file:
        told = json.load(file)
    flags = run(None, told, monkeypatch, "script")["FLAGS"]
    run(Kernel(told, flags), told, monkeypatch, "__main__")
    written = json.loads(capsys.readouterr().out)
    for key, of in told.items():
        assert written[key] == of, key
    assert written.keys() == told.keys()


def test_a_kernel_without_symbols_is_said(monkeypatch):
    told = {"hidden": {"read_by": "drgn 0.3.0"}}
    # Without types there is no name to look for, and `{}[...]` is a LookupError as drgn's.
    kernel = SimpleNamespace(caches=[Object({"oo": 0})], type=lambda name: {}[name])
    with pytest.raises(SystemExit) as failed:
        run(kernel, told, monkeypatch, "__main__")
    assert "debugging symbols" in str(failed.value)
