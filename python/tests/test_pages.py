"""contrib/quarry_pages.py on a stub of drgn: it tells pages of an array that is made here."""

import struct
import sys
from types import ModuleType, SimpleNamespace

import pytest
from conftest import ROOT

SCRIPTS = ROOT / "contrib"
SIZE = 64
# Members of struct page by their places.
PLACES = {"flags": 0, "compound_head": 8, "slab_cache": 16, "mapping": 24, "private": 40}
PLACES |= {"_mapcount": 48, "_large_mapcount": 56}
UNTYPED = 0xFFFF_FFFF
FLAGS = {
    "lru": 4,
    "uptodate": 3,
    "dirty": 5,
    "head": 6,
    "reserved": 12,
    "slab": 9,
    "swapbacked": 17,
}
DENTRY, PID = 0xFFFF888000000100, 0xFFFF888000000200
BASE = 0xFFFFEA0000000000


def page(*flags, link=0, cache=0, mapping=0, private=0, type=UNTYPED, large=UNTYPED):
    word = sum(1 << FLAGS[name] for name in flags)
    return struct.pack("=5QQIIII", word, link, cache, mapping, 0, private, type, 0, large, 0)


class Kernel:
    """The program that drgn debugs; its pages begin at a number."""

    platform = SimpleNamespace(flags=2 if sys.byteorder == "little" else 0)

    def __init__(self, first, pages, numbers, constants):
        self.first, self.data = first, b"".join(pages)
        self.numbers, self.constants = numbers, constants
        self.holes = ()

    def __getitem__(self, name):
        number = "".join(
            f"NUMBER(PAGE_{of}_MAPCOUNT_VALUE)={value}\n" for of, value in self.numbers.items()
        )
        ram = SimpleNamespace(
            name=SimpleNamespace(string_=lambda: b"System RAM"),
            start=SimpleNamespace(value_=lambda: 0),
            end=SimpleNamespace(value_=lambda: (1 << 40) - 1),
            sibling=None,
        )
        held = {
            "VMCOREINFO": SimpleNamespace(string_=number.encode),
            "PAGE_SIZE": SimpleNamespace(value_=lambda: 4096),
            "iomem_resource": SimpleNamespace(child=ram),
        }
        return held[name]

    def type(self, name):
        members = {
            "struct page": PLACES.keys() - {"_large_mapcount"},
            "struct folio": {"_large_mapcount"},
        }
        return SimpleNamespace(size=SIZE, has_member=members[name].__contains__)

    def constant(self, name):
        value = self.constants[name]
        return SimpleNamespace(value_=lambda: value)

    def address_size(self):
        return 8

    def read(self, at, size):
        start = at - BASE - self.first * SIZE
        if any(start < hole < start + size for hole in self.holes):
            raise MemoryError
        return self.data[start : start + size]

    def ranges(self):
        end = self.first + len(self.data) // SIZE
        return [(self.first, end, SimpleNamespace(value_=lambda: BASE))]


def blocks(kernel, monkeypatch):
    root = {"Object": object, "Program": Kernel, "Type": object, "FaultError": MemoryError}
    root |= {"PlatformFlags": SimpleNamespace(IS_LITTLE_ENDIAN=2)}
    root |= {"offsetof": lambda of, name: PLACES[name]}
    names = ("drgn", "drgn.helpers", "drgn.helpers.linux", "drgn.helpers.linux.mm")
    with monkeypatch.context() as patch:
        for name in names:
            module = ModuleType(name)
            vars(module).update(root if name == "drgn" else {})
            patch.setitem(sys.modules, name, module)
        module.for_each_valid_page_range = lambda prog: prog.ranges()
        patch.syspath_prepend(SCRIPTS)
        patch.delitem(sys.modules, "quarry_pages", raising=False)
        import quarry_pages

        caches = [(name, SimpleNamespace(value_=lambda of=of: of)) for name, of in CACHES.items()]
        found = quarry_pages.blocks_of(kernel, kernel.type("struct page"), caches)
        patch.delitem(sys.modules, "quarry_pages")
        return found


CACHES = {"dentry": DENTRY, "pid": PID}
FLAG = {f"PG_{name}": bit for name, bit in FLAGS.items()}
TYPES = {"BUDDY": -129, "OFFLINE": -257}
NEW_TYPES = {
    "BUDDY": -(0x10 << 24),
    "OFFLINE": -(0xF << 24),
    "SLAB": -(0xB << 24),
    "HUGETLB": -(0xC << 24),
}


def slab(cache, tails, is_new):
    own = {"type": -(0xB << 24) & UNTYPED} if is_new else {}
    flags = [] if is_new else ["slab"]
    head = page(*flags, *["head"] * bool(tails), cache=cache, **own)
    return [head] + [page(link=BASE | 1)] * tails


@pytest.mark.parametrize("is_new", [False, True])
def test_pages_are_told(is_new, monkeypatch, capsys):
    numbers = NEW_TYPES if is_new else TYPES
    constants = {**FLAG, "PGTY_table": 0xF2} if is_new else FLAG
    if is_new:
        del constants["PG_slab"]
    table = 0xF2 << 24 if is_new else UNTYPED & ~0x200
    buddy = page(private=2, type=numbers["BUDDY"] & UNTYPED)
    stale = page(type=numbers["BUDDY"] & UNTYPED)
    tail = page(link=BASE | 1)
    pages = [
        # 4 free pages, of which the first alone says so, and 3 of slabs.
        *[buddy, page("reserved"), page(), page()],
        *slab(DENTRY, 1, is_new),
        *slab(PID, 0, is_new),
        page(type=table),
        page("reserved"),
        page(),
        page("lru", mapping=1),
        page("lru", "dirty"),
        page("lru", type=0),
        page("lru"),
        # Two pages of a file together, which are mapped, and two that are not.
        *[page("lru", "head", large=0), tail],
        *[page("lru", "head"), tail],
        # Memory that is gone.
        b"\xff" * SIZE,
    ]
    pages += [page()] * (510 - len(pages))
    # A slab that goes on in the next block, though slabs of kernels do not.
    pages += slab(DENTRY, 3, is_new)
    pages += [stale] * 3 + slab(PID, 0, is_new)
    kernel = Kernel(1024, pages, numbers, constants)
    found = blocks(kernel, monkeypatch)
    assert found["slab_blocks"]["caches"] == {"dentry": "2:4 3:2", "pid": "2-3:1"}
    # free, movable, slab, page tables, kernel, untold, and cached among movable.
    rows = found["blocks"].splitlines()[4:]
    kinds = [4, 8, 5, 1, 1]
    untold = 512 - 1 - sum(kinds)
    assert rows == [f"2 1 4 8 5 1 1 {untold} 3", "3 1 3 0 3 0 0 0 0"]
    assert "read struct page" in capsys.readouterr().err


def test_pages_that_cannot_be_told_are_left_out(monkeypatch, capsys):
    kernel = Kernel(512, slab(DENTRY, 0, False), TYPES, {})
    assert blocks(kernel, monkeypatch) == {}
    assert "pages cannot be told: PG_slab" in capsys.readouterr().err
    # Types that are neither bits nor numbers.
    kernel = Kernel(512, slab(DENTRY, 0, False), {"BUDDY": 7}, FLAG)
    found = blocks(kernel, monkeypatch)
    assert found.keys() == {"slab_blocks"}
    assert "left out the map of memory: the type of page tables" in capsys.readouterr().err
    # A dump without a part has no map.
    kernel = Kernel(512, slab(DENTRY, 0, False) + slab(7, 600, False), TYPES, FLAG)
    kernel.holes = (513 * SIZE,)
    found = blocks(kernel, monkeypatch)
    assert found["slab_blocks"]["caches"] == {"dentry": "1:1"}
    assert "blocks" not in found
    error = capsys.readouterr().err
    assert "the dump lacks 90 of them; 511 pages of slabs are of no cache" in error
