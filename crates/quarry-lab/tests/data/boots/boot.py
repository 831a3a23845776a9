"""Boots a Debian kernel in QEMU under the load of the study of memory; writes its reports by stage.

    python boot.py KERNEL.deb CPUS REPORT.json.gz

KERNEL.deb is a package linux-image-*, or linux-binary-* from 6.19 on, of amd64, arm64 or ppc64el
(`apt-get download`). All need the package cpio. By architecture:

- amd64: qemu-system-x86, gcc, busybox-static
- arm64: qemu-system-arm, gcc-aarch64-linux-gnu, and busybox-static_*_arm64.deb next to KERNEL.deb
- ppc64el: qemu-system-ppc, gcc-powerpc64le-linux-gnu, and busybox-static_*_ppc64el.deb next to it

The report is read by `quarry what-if --stage` and `quarry sweep`.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROGRAMS = ("sh", "mount", "cat", "sleep", "mkfifo", "echo", "poweroff")
NAMES = ("active_objs", "num_objs", "objsize", "objperslab", "pagesperslab")


class Architecture(NamedTuple):
    """Compiler, emulated machine and console of an architecture."""

    gcc: str
    qemu: tuple[str, ...]
    console: str


ARCHITECTURES = {
    "amd64": Architecture("gcc", ("qemu-system-x86_64", "-M", "q35", "-cpu", "qemu64"), "ttyS0"),
    "arm64": Architecture(
        "aarch64-linux-gnu-gcc",
        ("qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "neoverse-n1"),
        "ttyAMA0",
    ),
    "ppc64el": Architecture(
        "powerpc64le-linux-gnu-gcc", ("qemu-system-ppc64", "-M", "pseries"), "hvc0"
    ),
}


def architecture(package: Path) -> str:
    """The architecture in a package's name."""
    name = package.stem.rpartition("_")[2]
    if name not in ARCHITECTURES:
        sys.exit(f"{package.name}: must end in _amd64.deb, _arm64.deb or _ppc64el.deb")
    return name


def unpacked(package: Path, target: Path) -> Path:
    """The folder with a package's files."""
    subprocess.run(["dpkg-deb", "-x", package, target], check=True)
    return target


def busybox(kernel: Path, work: Path) -> Path:
    """Busybox from a package next to the kernel's, or this system's."""
    name = architecture(kernel)
    for package in sorted(kernel.parent.glob(f"busybox-static_*_{name}.deb")):
        return next(unpacked(package, work / "busybox").rglob("bin/busybox"))
    if name != "amd64":
        sys.exit(f"{kernel.parent}: no busybox-static_*_{name}.deb")
    return Path("/bin/busybox")


def initramfs(kernel: Path, work: Path) -> Path:
    """An archive with busybox, the load and the first program."""
    root = work / "root"
    for name in ("bin", "proc", "sys", "tmp", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox(kernel, work), root / "bin")
    for name in PROGRAMS:
        (root / "bin" / name).symlink_to("busybox")
    gcc = [ARCHITECTURES[architecture(kernel)].gcc, "-O2", "-Wall", "-static"]
    subprocess.run([*gcc, "-o", root / "bin" / "load", HERE / "load.c"], check=True)
    shutil.copy(HERE / "init", root)
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    archive = work / "initramfs"
    with archive.open("wb") as out:
        cpio = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(cpio, cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def console(package: Path, cpus: str) -> str:
    """What the guest prints."""
    of = ARCHITECTURES[architecture(package)]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        kernel = next(unpacked(package, work / "package").rglob("vmlinu[xz]*"))
        qemu = [*of.qemu, "-accel", "tcg", "-m", "2G", "-smp", cpus]
        qemu += ["-nographic", "-no-reboot", "-net", "none"]
        qemu += ["-kernel", kernel, "-initrd", initramfs(package, work)]
        qemu += ["-append", f"console={of.console} panic=1 quiet"]
        done = subprocess.run(
            qemu, stdin=subprocess.DEVNULL, capture_output=True, timeout=1800, check=True
        )
    return done.stdout.decode(errors="replace").replace("\r", "")


def slabinfo(text: str) -> list[dict]:
    """Rows of /proc/slabinfo."""
    rows = []
    for line in text.splitlines()[2:]:
        words = line.split()
        row = dict(zip(NAMES, map(int, words[1:6]), strict=True))
        slabs = dict(zip(("active_slabs", "num_slabs"), map(int, words[13:15]), strict=True))
        rows.append({"name": words[0]} | row | slabs)
    return rows


def stage(text: str) -> dict:
    """Files of a stage."""
    files = {}
    for part in text.split("@@ file ")[1:]:
        name, content = part.split("\n", 1)
        files[name] = content
    memory = (line.replace(":", "").split() for line in files["meminfo"].splitlines())
    cpus = f"possible {files['possible'].strip()}\nonline {files['online'].strip()}"
    return {
        "version": files["version"].strip(),
        "cpus": cpus,
        "meminfo_kB": {name: int(value) for name, value, *_ in memory},
        "slabinfo": slabinfo(files["slabinfo"]),
    }


def main() -> None:
    """Boots the kernel and writes the report."""
    package, cpus, target = sys.argv[1:]
    text = console(Path(package), cpus)
    if "@@ end" not in text:
        sys.exit(f"the guest ended early:\n{text[-2000:]}")
    parts = text.split("@@ end")[0].split("@@ stage ")[1:]
    stages = {name: stage(content) for name, content in (part.split("\n", 1) for part in parts)}
    page = re.search(r"KernelPageSize: +(\d+) kB", text)
    if page is None:
        sys.exit("the guest did not print its page size")
    report = {"page_kB": int(page[1]), "stage_order": list(stages), "stages": stages}
    # Without a time, so that equal reports are equal files.
    data = gzip.compress(json.dumps(report).encode(), mtime=0)
    partial = Path(f"{target}.part")
    partial.write_bytes(data)
    os.replace(partial, target)


if __name__ == "__main__":
    main()
