//! The allocators that a program runs on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use quarry_designs::DesignSpec;

use crate::error;

/// The library with the designs.
const LIBRARY: &str = "libquarry_malloc.so";
/// Other allocators that are run if they are installed: their names and the libraries'.
const KNOWN: [(&str, &[&str]); 2] = [
    (
        "mimalloc",
        &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"],
    ),
    ("jemalloc", &["libjemalloc.so.2", "libjemalloc.so"]),
];
/// Folders of libraries, of the multiarch kind and others.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
];

/// An allocator.
pub(super) struct Arm {
    /// Its name in tables.
    pub(super) name: String,
    /// The library to preload; none for the C library's.
    pub(super) library: Option<PathBuf>,
    /// The design, for the library with the designs.
    pub(super) design: Option<String>,
}

/// All allocators: the C library's, once more as the null arm, the designs, and those beside.
pub(super) fn arms(
    designs: &[String],
    library: Option<&Path>,
    beside: &[PathBuf],
) -> anyhow::Result<Vec<Arm>> {
    let plain = |name: &str| Arm {
        name: name.to_owned(),
        library: None,
        design: None,
    };
    let mut arms = vec![plain("glibc"), plain("glibc again")];
    let library = match library {
        Some(path) => named("--library", path)?,
        None => beside_this_command()?,
    };
    check_preload(&library)?;
    for text in designs {
        let spec = DesignSpec::parse(text)?;
        arms.push(Arm {
            name: spec.to_string(),
            library: Some(library.clone()),
            design: Some(spec.to_string()),
        });
    }
    for path in beside {
        let path = named("--beside", path)?;
        check_preload(&path)?;
        let name = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        arms.push(Arm {
            name,
            library: Some(path),
            design: None,
        });
    }
    for (name, files) in KNOWN {
        let paths = FOLDERS
            .iter()
            .flat_map(|folder| files.iter().map(move |file| Path::new(folder).join(file)));
        if let Some(path) = paths.into_iter().find(|path| path.is_file()) {
            check_preload(&path)?;
            arms.push(Arm {
                name: name.to_owned(),
                library: Some(path),
                design: None,
            });
        }
    }
    Ok(arms)
}

/// The library that an option names.
fn named(option: &str, path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).context("the current folder is unknown")?;
    match path.is_file() {
        true => Ok(path),
        false => Err(error::usage(format!(
            "{option} {}: no such file",
            path.display()
        ))),
    }
}

/// Checks that the dynamic linker takes a library: what it does not take it leaves out, and the program runs without.
fn check_preload(library: &Path) -> anyhow::Result<()> {
    let mut nothing = Command::new("true");
    let nothing = nothing
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output();
    // Where there is no such program, nothing is known.
    let Ok(output) = nothing else { return Ok(()) };
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.lines().find(|line| line.contains("ld.so")) {
        Some(error) => Err(error::usage(format!(
            "{} cannot be preloaded: {error}",
            library.display()
        ))),
        None => Ok(()),
    }
}

/// The library where builds and installations of this command have it.
fn beside_this_command() -> anyhow::Result<PathBuf> {
    let command = crate::FILE.get();
    let command = command.with_context(|| {
        format!(
            "cannot find {LIBRARY}, as without /proc the place of this command is unknown: mount /proc, or name the \
             library by --library FILE"
        )
    })?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    // Cargo's folder of dependencies first: the other one has the library only where it was built by its own name, and
    // keeps an old one.
    let places = [
        folder.join("deps").join(LIBRARY),
        folder.join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
        folder.join("../lib/quarry").join(LIBRARY),
    ];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let places = places.map(|path| path.display().to_string()).join(", ");
        error::usage(format!(
            "there is no {LIBRARY} (looked for {places}): `cargo install` leaves it out; `cargo xtask install` in Quarry's \
             sources installs both; packages, archives and wheels for glibc have both; --library FILE names another place"
        ))
    })
}
