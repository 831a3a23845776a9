"""Boots a Debian kernel in QEMU under a load that mixes pages of two types in one block.

    python boot.py KERNEL.deb MEMORY CPUS FOLDER [slabs | atomic]

KERNEL.deb is a package linux-image-*, or linux-binary-* from 6.19 on, of amd64 or arm64 for
clouds, or of ppc64el (`apt-get download`); MEMORY is such as 512M. FOLDER gets trace.txt, a folder
with the reports of each stage, and guest/. With `slabs` the recording has the events of slabs, too.
With `atomic` the load is another one: below the low watermark packets make sockets.
Needs cpio, e2fsprogs, and by architecture

- amd64: qemu-system-x86, gcc
- arm64: qemu-system-arm, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross
- ppc64el: qemu-system-ppc, gcc-powerpc64le-linux-gnu, libc6-dev-ppc64el-cross, xz-utils
"""

import lzma
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PAGES = ("alloc", "free", "free_batched", "pcpu_drain", "alloc_extfrag", "alloc_zone_locked")
SLABS = ("kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free")
FILES = 4096
DISK = "if=none,format=raw,cache=unsafe,file="


class Architecture(NamedTuple):
    """Compiler, emulated machine, console and disk of an architecture, and what else it needs."""

    gcc: str
    qemu: tuple[str, ...]
    console: str
    disk: str
    modules: tuple[str, ...] = ()
    options: str = ""


ARCHITECTURES = {
    "amd64": Architecture(
        "gcc", ("qemu-system-x86_64", "-M", "q35", "-cpu", "qemu64"), "ttyS0", "nvme,serial={0}"
    ),
    "arm64": Architecture(
        "aarch64-linux-gnu-gcc",
        ("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"),
        "ttyAMA0",
        "nvme,serial={0}",
        # Memory for devices would be of a further type, and is not needed.
        options=" cma=0",
    ),
    "ppc64el": Architecture(
        "powerpc64le-linux-gnu-gcc",
        ("qemu-system-ppc64", "-M", "pseries"),
        "hvc0",
        "virtio-blk-pci",
        ("virtio_blk", "crc16", "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4"),
    ),
}


def unpacked(package: Path, target: Path) -> Path:
    """The kernel of a package."""
    subprocess.run(["dpkg-deb", "-x", package, target], check=True)
    return next(target.rglob("vmlinu[xz]*"))


def initramfs(of: Architecture, package: Path, work: Path) -> Path:
    """An archive with the load as the first program, and modules in their order."""
    root = work / "root"
    (root / "dev").mkdir(parents=True)
    (root / "modules").mkdir()
    gcc = [of.gcc, "-O2", "-Wall", "-static"]
    subprocess.run([*gcc, "-o", root / "init", HERE / "load.c"], check=True)
    subprocess.run(["mknod", root / "dev" / "console", "c", "5", "1"], check=True)
    for at, name in enumerate(of.modules):
        packed = next(package.rglob(f"{name}.ko.xz"))
        (root / "modules" / f"{at:02}.ko").write_bytes(lzma.decompress(packed.read_bytes()))
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = work / "initramfs"
    with archive.open("wb") as out:
        cpio = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(cpio, cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def files(work: Path, count: int) -> Path:
    """A disk with files to read."""
    tree = work / "tree"
    for at in range(count):
        name = tree / str(at // 100) / str(at)
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(bytes([at % 256]) * 65536)
    disk = work / "files"
    with disk.open("wb") as out:
        out.truncate(count * 80000 + (32 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-d", tree, disk], check=True)
    return disk


def run(package: Path, memory: str, cpus: str, more: list[str], work: Path) -> Path:
    """The disk that the guest wrote."""
    of = ARCHITECTURES[package.stem.rpartition("_")[2]]
    slabs = more == ["slabs"]
    kernel = unpacked(package, work / "package")
    result = work / "result"
    with result.open("wb") as out:
        out.truncate(4 << 30)
    events = [f"kmem:mm_page_{name}" for name in PAGES]
    events += [f"kmem:{name}" for name in SLABS if slabs]
    options = f"console={of.console} panic=-1 quiet trace_clock=global{of.options}"
    options += f" trace_buf_size={24 if slabs else 3}M trace_event={','.join(events)}"
    if slabs:
        options += " no_hash_pointers nokaslr"
    if more == ["atomic"]:
        options += " atomic"
    qemu = [*of.qemu, "-accel", "tcg", "-m", memory, "-smp", cpus]
    qemu += ["-nographic", "-no-reboot", "-net", "none"]
    for at, disk in enumerate((files(work, FILES), result)):
        qemu += ["-drive", f"{DISK}{disk},id=disk{at}"]
        qemu += ["-device", f"{of.disk.format(at)},drive=disk{at}"]
    qemu += ["-kernel", kernel, "-initrd", initramfs(of, work / "package", work)]
    qemu += ["-append", options]
    done = subprocess.run(
        qemu, stdin=subprocess.DEVNULL, capture_output=True, timeout=1800, check=True
    )
    said = done.stdout.decode(errors="replace").replace("\r", "")
    if "@@ end" not in said:
        sys.exit(f"the guest ended early:\n{said[-2000:]}")
    return result


def sort(result: Path, target: Path) -> None:
    """Splits what the guest wrote into files."""
    target.mkdir(parents=True, exist_ok=True)
    with result.open("rb") as data, (target / "trace.txt").open("wb") as trace:
        while True:
            data.readline()
            _, name, size = data.readline().decode().split()
            if name == "end":
                return
            content = data.read(int(size))
            if name == "trace":
                trace.write(content)
            else:
                file = target / name
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(content)


def main() -> None:
    """Boots the kernel and writes the folder."""
    package, memory, cpus, target, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        work = Path(name)
        sort(run(Path(package), memory, cpus, more, work), Path(target))


if __name__ == "__main__":
    main()
