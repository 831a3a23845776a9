"""Boots a Debian kernel in QEMU under a load that mixes pages of two types in one block; writes the recording and the reports.

    python boot.py KERNEL.deb MEMORY CPUS FOLDER [slabs]

KERNEL.deb is a package linux-image-*, or linux-binary-* from 6.19 on, of amd64 (`apt-get download`); MEMORY is such as 512M.
FOLDER gets trace.txt, a folder with /proc of each stage, and what is known of the guest in guest/. With `slabs` the recording has the events
of slabs, too. Needs qemu-system-x86, gcc, cpio and e2fsprogs.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = ("alloc", "free", "free_batched", "pcpu_drain", "alloc_extfrag", "alloc_zone_locked")
SLABS = ("kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free")
DISK = "if=none,format=raw,cache=unsafe,file="


def unpacked(package: Path, target: Path) -> Path:
    """The kernel of a package."""
    subprocess.run(["dpkg-deb", "-x", package, target], check=True)
    return next(target.rglob("vmlinu[xz]*"))


def initramfs(work: Path) -> Path:
    """An archive with the load as the first program."""
    root = work / "root"
    (root / "dev").mkdir(parents=True)
    gcc = ["gcc", "-O2", "-Wall", "-static"]
    subprocess.run([*gcc, "-o", root / "init", HERE / "load.c"], check=True)
    subprocess.run(["mknod", root / "dev" / "console", "c", "5", "1"], check=True)
    archive = work / "initramfs"
    with archive.open("wb") as out:
        cpio = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(cpio, cwd=root, input=b"init\ndev\ndev/console\n", stdout=out, check=True)
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


def run(package: Path, memory: str, cpus: int, slabs: bool, work: Path) -> Path:
    """The disk that the guest wrote."""
    result = work / "result"
    with result.open("wb") as out:
        out.truncate(4 << 30)
    events = [f"kmem:mm_page_{name}" for name in PAGES]
    if slabs:
        events += [f"kmem:{name}" for name in SLABS]
    options = f"console=ttyS0 panic=-1 quiet trace_clock=global trace_buf_size={24 if slabs else 3}M"
    qemu = ["qemu-system-x86_64", "-M", "q35", "-cpu", "qemu64", "-accel", "tcg"]
    qemu += ["-m", memory, "-smp", str(cpus), "-nographic", "-no-reboot", "-net", "none"]
    for at, disk in enumerate((files(work, 8192 if memory == "1G" else 4096), result)):
        qemu += ["-drive", f"{DISK}{disk},id=disk{at}", "-device", f"nvme,serial={at},drive=disk{at}"]
    qemu += ["-kernel", unpacked(package, work / "package"), "-initrd", initramfs(work)]
    qemu += ["-append", f"{options} trace_event={','.join(events)}"]
    done = subprocess.run(qemu, stdin=subprocess.DEVNULL, capture_output=True, timeout=1800)
    said = done.stdout.decode(errors="replace").replace("\r", "")
    print(said[-3000:])
    if "@@ end" not in said:
        sys.exit("the guest ended early")
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
        sort(run(Path(package), memory, int(cpus), more == ["slabs"], work), Path(target))


if __name__ == "__main__":
    main()
