//! A run whose allocations become a trace.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quarry_core::design::Design as _;
use quarry_core::sheaf::SheafCache;
use quarry_trace::{OutFile, import_program};

use super::arms::Arm;
use super::child;
use super::runs::{Runner, What};
use crate::{error, output, terminal, units};

/// Refuses an output that could not be written, before the program runs.
pub(super) fn check(path: &Path, force: output::Force) -> anyhow::Result<()> {
    OutFile::create(path, force.existing())?;
    Ok(())
}

/// Runs the program on sheaves and writes what it allocates to `path`. It has to end with this exit code.
pub(super) fn record(
    runner: &Runner<'_>,
    code: i32,
    library: &Path,
    path: &Path,
    force: output::Force,
) -> anyhow::Result<()> {
    // Beside the output: recordings are large, and folders for temporary files may be in memory.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = child::folder(Some(parent.unwrap_or(Path::new("."))))
        .with_context(|| format!("no folder for the recording beside {}", path.display()))?;
    let arm = Arm {
        name: SheafCache::NAME.to_owned(),
        library: Some(library.to_path_buf()),
        design: Some(SheafCache::NAME.to_owned()),
    };
    let calls = folder.path().join("calls");
    // A child of a program that has dropped its rights makes its file by the parent's descriptor. No one else gets here.
    std::fs::create_dir(&calls)
        .and_then(|()| std::fs::set_permissions(&calls, PermissionsExt::from_mode(0o1777)))
        .context("no folder for the recording")?;
    let parts = calls.join("calls");
    let ended = runner.run(Some(code), &arm, What::Record(&parts))?;
    if let Err(failure) = ended {
        return Err(anyhow::anyhow!(
            "the program does not end as it should while it is recorded: {failure}"
        ));
    }
    let mut files = written(&calls)?;
    let Some((used, part)) = files.pop() else {
        return Err(error::usage(
            "nothing was recorded: the program is linked statically, or it is one that ignores LD_PRELOAD",
        ));
    };
    if used == 0 {
        // The library says nothing inside of a program: a page that is written here as there says why.
        std::fs::write(folder.path().join("page"), [0; 4096])
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = OutFile::create(path, force.existing())?;
    let file = File::open(&part).with_context(|| format!("cannot read {}", part.display()))?;
    let trace = import_program(file, &part, out.file(), path, &runner.program.words())?;
    out.commit()?;
    let lost = match trace.meta.lost_events {
        0 => String::new(),
        lost => format!("; {} lost, as the file could not grow", units::count(lost)),
    };
    let others = match files.len() {
        0 => String::new(),
        n => format!(
            "; {} of other processes left out",
            units::counted(n, "recording")
        ),
    };
    terminal::note(&format!(
        "recorded {} events of a process to {}; {} of its frees on another CPU than the allocation{lost}{others}",
        units::count(trace.meta.rows),
        path.display(),
        units::percent(trace.cross_cpu_frees, trace.frees),
    ));
    Ok(())
}

/// The processes' recordings, by their calls.
fn written(folder: &Path) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let read = || {
        let mut files = Vec::new();
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            files.push((used(&File::open(&path)?)?, path));
        }
        files.sort();
        io::Result::Ok(files)
    };
    read().context("cannot read the recordings")
}

/// The end of what was written to a file that zeros follow, to the page.
fn used(file: &File) -> io::Result<u64> {
    let mut page = [0; 4096];
    let mut end = file.metadata()?.len();
    while let Some(start) = end.checked_sub(page.len() as u64) {
        file.read_exact_at(&mut page, start)?;
        if page.iter().any(|&byte| byte != 0) {
            break;
        }
        end = start;
    }
    Ok(end)
}
