//! An instance of tracing: a folder in tracefs with rings of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::OFlags;
use rustix::mount::MountFlags;

use super::failed;
use crate::error::Result;
use crate::report::CLOCK_MONO;

/// Place at which tracefs is mounted on request.
const MOUNT: &str = "/sys/kernel/tracing";
/// Prefix of this program's instances; [`process_name`] follows.
const PREFIX: &str = "quarry-";

/// The instance. Dropped, it stops and goes.
pub(super) struct Instance {
    dir: PathBuf,
    /// The CPUs that have a ring.
    cpus: Vec<u16>,
}

/// A CPU's ring.
pub(super) struct Ring {
    pub(super) cpu: u16,
    pub(super) path: PathBuf,
    pub(super) file: File,
}

/// The rings' clock.
pub(super) struct Clock {
    path: PathBuf,
    file: File,
}

impl Instance {
    /// Makes an instance with rings of this size, which records nothing yet. Removes those of processes
    /// that have ended. Mounts tracefs only if that is wanted.
    pub(super) fn make(ring_bytes: u64, mount: bool) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let instances = match mount_point(&mounts) {
            None if mount => {
                let made =
                    rustix::mount::mount("tracefs", MOUNT, "tracefs", MountFlags::empty(), None);
                made.map_err(|error| failed("mount tracefs at", MOUNT)(error.into()))?;
                Path::new(MOUNT).join("instances")
            }
            found => found.unwrap_or_else(|| MOUNT.into()).join("instances"),
        };
        remove_stale(&instances);
        let pid = process::id().to_string();
        let name = process_name(&pid).unwrap_or(pid);
        let dir = instances.join(format!("{PREFIX}{name}"));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed("make the tracing instance", &dir))?,
        }
        let mut instance = Self {
            dir,
            cpus: Vec::new(),
        };
        instance.cpus = instance.list_cpus()?;
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", CLOCK_MONO)?;
        let kib = (ring_bytes >> 10).max(64);
        instance.set("buffer_size_kb", &kib.to_string())?;
        Ok(instance)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<String> {
        // The head of pages is described once for all instances.
        let mut path = self.path(name);
        if !path.exists()
            && let Some(mount) = self.dir.ancestors().nth(2)
        {
            path = mount.join(name);
        }
        read_text(&path).map_err(failed("read", path))
    }

    pub(super) fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, value).map_err(failed("write", path))
    }

    /// Adds a value to a file that has several.
    pub(super) fn add(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path(name);
        let opened = OpenOptions::new().append(true).open(&path);
        let written = opened.and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(failed("write", path))
    }

    /// Begins to record these tracepoints.
    pub(super) fn enable(&self, tracepoints: &[String]) -> Result<()> {
        for name in tracepoints {
            self.set(&format!("events/{name}/enable"), "1")?;
        }
        self.set("tracing_on", "1")
    }

    /// Ends the recording; the rings can still be read.
    pub(super) fn stop(&self) -> Result<()> {
        self.set("tracing_on", "0")
    }

    /// The rings, by CPU.
    pub(super) fn rings(&self) -> Result<Vec<Ring>> {
        let mut rings = Vec::new();
        for cpu in self.cpus.iter().copied() {
            let path = self.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&path)
                .map_err(failed("open", &path))?;
            rings.push(Ring { cpu, path, file });
        }
        Ok(rings)
    }

    fn list_cpus(&self) -> Result<Vec<u16>> {
        let path = self.path("per_cpu");
        let entries = fs::read_dir(&path).map_err(failed("list", &path))?;
        let mut cpus: Vec<u16> = entries
            .flatten()
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix("cpu")?
                    .parse()
                    .ok()
            })
            .collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Events that the rings had no room for.
    pub(super) fn lost(&self) -> Result<u64> {
        let mut lost = 0_u64;
        for cpu in &self.cpus {
            let stats = self.text(&format!("per_cpu/cpu{cpu}/stats"))?;
            for name in ["overrun", "commit overrun", "dropped events"] {
                lost = lost.saturating_add(stat(&stats, name).parse().unwrap_or(0));
            }
        }
        Ok(lost)
    }

    pub(super) fn clock(&self) -> Result<Clock> {
        let cpu = self.cpus.first().copied().unwrap_or(0);
        let path = self.path(&format!("per_cpu/cpu{cpu}/stats"));
        let file = File::open(&path).map_err(failed("open", &path))?;
        Ok(Clock { path, file })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The next run removes what is left.
        let _ = self.stop();
        let _ = fs::remove_dir(&self.dir);
    }
}

impl Clock {
    /// The time, at most a microsecond ago.
    pub(super) fn now_ns(&mut self) -> Result<u64> {
        let mut text = String::new();
        let read = self
            .file
            .rewind()
            .and_then(|()| self.file.read_to_string(&mut text));
        read.map_err(failed("read", &self.path))?;
        Ok(seconds(stat(&text, "now ts")).unwrap_or(0))
    }
}

/// Reads a file in large pieces: `header_page` gives nothing to a second read, however short the first was.
fn read_text(path: &Path) -> std::io::Result<String> {
    const PIECE_BYTES: usize = 1 << 16;
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend_from_slice(&piece[..length]),
        }
    }
}

/// A value of a ring's `stats`: `overrun: 0`.
fn stat<'a>(stats: &'a str, name: &str) -> &'a str {
    let mut lines = stats.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_default().trim()
}

/// Nanoseconds of `80453.422426`.
fn seconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(micros.checked_mul(1000)?)
}

/// The place where tracefs is mounted, by the text of `/proc/self/mounts`; before Linux 4.1 a folder of debugfs. No
/// folder is looked into, as that of debugfs would mount tracefs.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let of_type = |kind: &str| {
        let mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let mut found = mounts.filter(|words| words.get(2) == Some(&kind));
        // Blanks of names are octal escapes, which no mount point of these has.
        found.find_map(|words| words.get(1).map(PathBuf::from))
    };
    of_type("tracefs")
        .or_else(|| Some(of_type("debugfs")?.join("tracing")).filter(|_| is_before_tracefs()))
}

/// True on a kernel that has no tracefs.
fn is_before_tracefs() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    !known.lines().any(|line| line.ends_with("\ttracefs"))
}

/// Removes the instances of recorders that have ended. Failures are passed over: they keep nothing from
/// recording. The kernel keeps an instance whose rings are open.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if owner.is_some_and(|owner| !is_alive(owner)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Names a process so that no other has the name during this boot: its id and when it began. `None` if it has
/// ended, also if its parent has not asked for its end.
fn process_name(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything (`proc(5)`).
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let state = words.next()?;
    const STARTED: usize = 18;
    let started = words.nth(STARTED)?;
    (state != "Z" && state != "X").then(|| format!("{pid}-{started}"))
}

/// True if the recorder of this name, `PID-START`, runs.
fn is_alive(owner: &str) -> bool {
    let pid = owner.split('-').next().unwrap_or_default();
    process_name(pid).is_some_and(|name| name == owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_times_of_a_ring() {
        let stats = "entries: 7\noverrun: 3\ncommit overrun: 2\nnow ts: 80453.422426\n";
        assert_eq!(
            (stat(stats, "overrun"), stat(stats, "commit overrun")),
            ("3", "2")
        );
        assert_eq!(stat(stats, "dropped events"), "");
        assert_eq!(seconds(stat(stats, "now ts")), Some(80_453_422_426_000));
        assert_eq!(seconds("7"), None);
        assert_eq!(seconds("99999999999999.1"), None);
    }

    #[test]
    fn tracefs_is_where_it_is_mounted() {
        let debugfs = "debugfs /sys/kernel/debug debugfs rw 0 0\n";
        let tracefs = "tracefs /sys/kernel/tracing tracefs rw,relatime 0 0\n";
        let found = mount_point(&format!("{debugfs}{tracefs}"));
        assert_eq!(found, Some(MOUNT.into()));
        // Looking into the folder of debugfs would mount it.
        assert_eq!(mount_point(debugfs).is_some(), is_before_tracefs());
        assert_eq!(mount_point(""), None);
    }

    /// An id is given again, and a recorder whose parent does not ask for its end keeps it.
    #[test]
    fn a_recorder_is_known_by_its_id_and_its_start() {
        let own = process_name(&process::id().to_string()).unwrap();
        assert!(is_alive(&own), "{own}");
        let (pid, started) = own.split_once('-').unwrap();
        let later = started.parse::<u64>().unwrap() + 1;
        for other in [
            format!("{pid}-{later}"),
            pid.to_string(),
            "0-1".to_string(),
            String::new(),
        ] {
            assert!(!is_alive(&other), "{other}");
        }
        let mut child = process::Command::new("true").spawn().unwrap();
        let pid = child.id().to_string();
        let start = std::time::Instant::now();
        while process_name(&pid).is_some() {
            assert!(start.elapsed().as_secs() < 60, "the child does not end");
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
    }
}
