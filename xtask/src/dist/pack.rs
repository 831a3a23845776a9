//! The tree as an archive, a Debian package and an RPM package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::tree::copy;
use super::{Arch, VERSION, folder};
use crate::shell;

const SUMMARY: &str = "The Linux kernel's slab allocators as a laboratory";
const URL: &str = env!("CARGO_PKG_REPOSITORY");
/// Users of packages ask by mail or by issues; there is no address of a person.
const MAINTAINER: &str = "The Quarry authors <authors@kquarry.invalid>";
const DESCRIPTION: &str = "Says how much slab memory a kernel has, of what and why, and what another release, page \
                           size or tunable would change. Replays recordings of real kernels on any design.";

/// Writes the three files into a folder.
pub(super) fn run(arch: Arch, tree: &Path, packages: &Path, epoch: &str) -> Result<()> {
    archive(arch, tree, packages, epoch)?;
    let root = folder().join("roots").join(arch.name());
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    copy_tree(tree, &root.join("usr"))?;
    rpm(arch, &root, packages, epoch)?;
    deb(arch, &root, packages, epoch)
}

/// Entries in the order of their names, of root, with the time of the commit.
fn archive(arch: Arch, tree: &Path, packages: &Path, epoch: &str) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0", "--mode=u+rw,go=rX"]);
    tar.arg(format!("--mtime=@{epoch}"));
    // Jumps as absolute addresses: a twentieth less. The filter for the other processor needs an xz of 2022 to unpack.
    let filter = match arch {
        Arch::X86_64 => "--x86 ",
        Arch::Aarch64 => "",
    };
    let xz = format!("xz {filter}--lzma2=preset=9e -T1");
    tar.arg("--use-compress-program").arg(xz);
    tar.arg("--file")
        .arg(packages.join(format!("{}.tar.xz", arch.stem())));
    tar.arg("--directory").arg(tree.parent().unwrap_or(tree));
    shell::run(tar.arg(arch.stem()))
}

fn deb(arch: Arch, root: &Path, packages: &Path, epoch: &str) -> Result<()> {
    let control = root.join("DEBIAN");
    fs::create_dir(&control)?;
    let text = format!(
        "Package: quarry\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: devel\n\
         Priority: optional\nHomepage: {URL}\nDescription: {SUMMARY}\n {DESCRIPTION}\n",
        arch.debian()
    );
    fs::write(control.join("control"), text)?;
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", epoch);
    build.args(["--root-owner-group", "-Zxz", "-z9", "--threads-max=1"]);
    build.arg("--build").arg(root);
    build.arg(packages.join(format!("quarry_{VERSION}_{}.deb", arch.debian())));
    shell::run(&mut build)
}

fn rpm(arch: Arch, root: &Path, packages: &Path, epoch: &str) -> Result<()> {
    let top = folder().join("rpm").join(arch.name());
    if top.exists() {
        fs::remove_dir_all(&top)?;
    }
    fs::create_dir_all(&top)?;
    let spec = top.join("quarry.spec");
    // Nothing is compiled, stripped or compressed by it: the files are as the other packages have them. What the library
    // needs of the C library is that of the programs it is loaded into.
    let text = format!(
        "Name: quarry\nVersion: {VERSION}\nRelease: 1\nSummary: {SUMMARY}\nLicense: MIT OR Apache-2.0\nURL: {URL}\n\
         AutoReqProv: no\n%description\n{DESCRIPTION}\n%install\ncp -a {}/. %{{buildroot}}\n%files\n{}\n",
        root.display(),
        files(root, root)?.join("\n")
    );
    fs::write(&spec, text)?;
    let mut build = Command::new("rpmbuild");
    build.env("SOURCE_DATE_EPOCH", epoch);
    build
        .arg("-bb")
        .arg("--quiet")
        .args(["--target", &format!("{}-linux", arch.name())]);
    for (name, value) in [
        ("_topdir", top.display().to_string().as_str()),
        ("_rpmdir", packages.display().to_string().as_str()),
        ("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        ("_buildhost", "localhost"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("_binary_payload", "w7.xzdio"),
        ("_build_id_links", "none"),
        ("__os_install_post", "%{nil}"),
        ("debug_package", "%{nil}"),
        ("__arch_install_post", "%{nil}"),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    shell::run(build.arg(&spec))
}

/// Every file below a folder with its owner, in order.
fn files(folder: &Path, root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path, root)?);
        } else {
            let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
            let path = path.strip_prefix(root)?;
            files.push(format!("%attr({mode:o}, root, root) /{}", path.display()));
        }
    }
    files.sort();
    Ok(files)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_tree(&path, &to)?,
            false => {
                let mode = entry.metadata()?.permissions().mode() & 0o111;
                copy(&path, &to, 0o644 | mode)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with other times, and files made in another order, packed.
    fn packed(names: [&str; 2], pack: impl Fn(&Path, &Path)) -> Vec<Vec<u8>> {
        let own = tempfile::tempdir().unwrap();
        let (tree, packages) = (own.path().join("tree"), own.path().join("packages"));
        let tree = tree.join(Arch::X86_64.stem());
        fs::create_dir_all(tree.join("bin")).unwrap();
        fs::create_dir(&packages).unwrap();
        for name in names {
            fs::write(tree.join("bin").join(name), name).unwrap();
        }
        pack(&tree, &packages);
        let mut files: Vec<_> = fs::read_dir(&packages)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    fn same_bytes(pack: impl Fn(&Path, &Path)) -> usize {
        let one = packed(["a", "b"], &pack);
        // Times have seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(one == packed(["b", "a"], &pack));
        one.len()
    }

    #[test]
    fn an_archive_of_the_same_files_has_the_same_bytes() {
        let pack = |tree: &Path, packages: &Path| {
            archive(Arch::X86_64, tree, packages, "1000000000").unwrap();
        };
        assert_eq!(same_bytes(pack), 1);
    }

    #[test]
    #[ignore = "needs dpkg and rpm: cargo test -p xtask -- --ignored packages"]
    fn packages_of_the_same_files_have_the_same_bytes() {
        let pack = |tree: &Path, packages: &Path| {
            for arch in [Arch::X86_64, Arch::Aarch64] {
                // The archive is of the folder that has the processor's name.
                let folder = tree.with_file_name(arch.stem());
                if folder != tree {
                    copy_tree(tree, &folder).unwrap();
                }
                run(arch, &folder, packages, "1000000000").unwrap();
            }
        };
        assert_eq!(same_bytes(pack), 6);
    }
}
