//! The process of a run: how it begins, how it ends, and how its memory is counted.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, waitid,
};
use tempfile::TempDir;
use wait4::{ResUse, Wait4 as _};

/// The way in which programs are started, by which their memory is known or not.
///
/// The system counts what a process has before it becomes the program. One that is spawned has all memory of this command
/// until then; one that is forked has only what is anonymous, and a command that sets its group is forked. Here the group is
/// what it was.
pub(super) enum Start {
    /// Forked. Peaks up to this tell nothing, in bytes: those of a program that does nothing.
    Forked(u64),
    /// Spawned, as the system refuses the group, or has no program that does nothing: no peak is known.
    Spawned,
}

impl Start {
    /// Runs a program that does nothing.
    pub(super) fn probe() -> Self {
        let mut nothing = Self::Forked(0).command(OsStr::new("true"));
        let nothing = nothing
            .stdin(Stdio::null())
            .spawn()
            .and_then(|child| child.wait4());
        match nothing {
            // Forks differ by some pages.
            Ok(used) if used.status.success() => {
                Self::Forked(used.rusage.maxrss + used.rusage.maxrss / 8)
            }
            _ => Self::Spawned,
        }
    }

    pub(super) fn command(&self, name: &OsStr) -> Command {
        let mut command = Command::new(name);
        if let Self::Forked(_) = self {
            command.gid(getgid().as_raw());
        }
        command
    }

    /// Most memory at a time; none if it is not clearly more than that of a program that does nothing.
    pub(super) fn peak(&self, used: &ResUse) -> Option<u64> {
        match *self {
            Self::Forked(least) => Some(used.rusage.maxrss).filter(|&bytes| bytes > least),
            Self::Spawned => None,
        }
    }
}

/// Things that are left if the command ends at once.
struct Running {
    /// The group of the program that runs now, until it has been waited for: its number is no other's till then.
    group: Option<Pid>,
    folders: Vec<PathBuf>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running {
    group: None,
    folders: Vec::new(),
});

fn running() -> MutexGuard<'static, Running> {
    // Each change of it is one step, so that it is whole wherever its owner ended.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    fn kill(&self) {
        if let Some(group) = self.group {
            // It may have ended just now, which is as good.
            let _ = kill_process_group(group, Signal::KILL);
            kill_children();
        }
    }
}

/// Kills the children of this command, and counts them. Those of a program that has ended are among them ([`spawn`]).
fn kill_children() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = tasks
        .flatten()
        .flat_map(|task| std::fs::read_to_string(task.path().join("children")));
    let of_list = |list: String| -> Vec<i32> {
        let numbers = list.split_whitespace();
        numbers.flat_map(str::parse).collect()
    };
    let children = lists.flat_map(of_list).filter_map(Pid::from_raw);
    children
        .filter(|child| kill_process(*child, Signal::KILL).is_ok())
        .count()
}

/// Ends what the program has left running, in its group or not: a daemon would run beside the next runs.
fn end_the_rest() {
    loop {
        // The children of one that ends are this command's, and are met in the next turn.
        let options = match kill_children() {
            0 => WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            _ => WaitIdOptions::EXITED,
        };
        if !matches!(retry_on_intr(|| waitid(WaitId::All, options)), Ok(Some(_))) {
            return;
        }
    }
}

/// Kills the program that runs now, with what it started in its group, and removes the folders of this command, which ends.
pub(super) fn end_for_good() {
    let running = running();
    running.kill();
    for folder in &running.folders {
        // What stays is in a folder for temporary files, or named as one.
        let _ = std::fs::remove_dir_all(folder);
    }
    // Never given back: the main thread, which waits for it, must not take the killed program for one that failed.
    std::mem::forget(running);
}

/// A folder for temporary files that goes when this is dropped, and when a signal ends the command.
pub(super) struct Folder(TempDir);

/// Makes a folder, in `parent` or where the system has temporary files.
pub(super) fn folder(parent: Option<&Path>) -> io::Result<Folder> {
    let mut running = running();
    let folder = match parent {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    }?;
    running.folders.push(folder.path().to_path_buf());
    Ok(Folder(folder))
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        running().folders.retain(|folder| folder != self.0.path());
    }
}

/// Starts a program, as the one that runs now.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    // Locked before it exists, so that there is no moment in which a signal would leave it behind.
    let mut running = running();
    // Processes whose parent ends become this command's. Without it, a daemon stays.
    let _ = set_child_subreaper(Some(getpid()));
    let child = command.spawn()?;
    running.group = Some(Pid::from_child(&child));
    Ok(child)
}

/// Waits for the program that runs now; `false` if it had to be killed because the time was over.
pub(super) fn wait(child: Child, timeout: Option<Duration>) -> anyhow::Result<(ResUse, bool)> {
    let number = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    let in_time = thread::scope(|scope| {
        let watch = timeout.map(|timeout| {
            scope.spawn(move || {
                let late = end.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
                if late {
                    running().kill();
                }
                !late
            })
        });
        // Without taking the status, so that the number stays the program's while it is in `RUNNING`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = retry_on_intr(|| waitid(WaitId::Pid(number), options));
        running().group = None;
        // The watch ends by itself if it was late.
        let _ = ended.send(());
        watch.is_none_or(|watch| watch.join().unwrap_or(true))
    });
    let used = child.wait4().context("cannot wait for the program")?;
    end_the_rest();
    Ok((used, in_time))
}
