"""Boots a Debian kernel in QEMU under the load of the study of memory, and writes what it reports in each stage.

    python boot.py KERNEL.deb CPUS REPORT.json.gz

KERNEL.deb is a package linux-image-*-cloud-amd64, or linux-binary-* from 6.19 on (`apt-get download`). Needs the packages
qemu-system-x86, busybox-static, cpio and gcc. The report is read by `quarry what-if --stage` and `quarry sweep`.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("sh", "mount", "cat", "sleep", "mkfifo", "echo", "poweroff")
NAMES = ("active_objs", "num_objs", "objsize", "objperslab", "pagesperslab")


def initramfs(work: Path) -> Path:
    """An archive with busybox, the load and the first program."""
    root = work / "root"
    for name in ("bin", "proc", "sys", "tmp", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin")
    for name in PROGRAMS:
        (root / "bin" / name).symlink_to("busybox")
    load = ["gcc", "-O2", "-Wall", "-static", "-o", root / "bin" / "load", HERE / "load.c"]
    subprocess.run(load, check=True)
    shutil.copy(HERE / "init", root)
    names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*"))
    archive = work / "initramfs"
    with archive.open("wb") as out:
        cpio = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(cpio, cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def kernel(package: Path, work: Path) -> Path:
    """The kernel's image out of its package."""
    subprocess.run(["dpkg-deb", "-x", package, work / "package"], check=True)
    return next((work / "package").rglob("vmlinuz*"))


def console(package: Path, cpus: str) -> str:
    """What the guest prints."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        qemu = ["qemu-system-x86_64", "-M", "q35", "-cpu", "qemu64", "-accel", "tcg", "-m", "2G"]
        qemu += ["-smp", cpus, "-nographic", "-no-reboot", "-net", "none"]
        qemu += ["-kernel", kernel(package, work), "-initrd", initramfs(work)]
        qemu += ["-append", "console=ttyS0 panic=1 quiet"]
        done = subprocess.run(
            qemu, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=True
        )
    return done.stdout.decode(errors="replace").replace("\r", "")


def slabinfo(text: str) -> list[dict]:
    """Rows of /proc/slabinfo."""
    rows = []
    for line in text.splitlines()[2:]:
        words = line.split()
        row = dict(zip(NAMES, map(int, words[1:6])))
        slabs = dict(zip(("active_slabs", "num_slabs"), map(int, words[13:15])))
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
    report = {"page_kB": 4, "stage_order": list(stages), "stages": stages}
    # Without a time, so that equal reports are equal files.
    data = gzip.compress(json.dumps(report).encode(), mtime=0)
    partial = Path(f"{target}.part")
    partial.write_bytes(data)
    os.replace(partial, target)


if __name__ == "__main__":
    main()
