//! Tasks whose events are recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::in_first_pid_namespace;
use super::instance::Instance;
use crate::error::{Result, TraceError};

/// Mount points of control groups; the second is that of version 2 beside version 1.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Most bytes of a task's name (`TASK_COMM_LEN` and a NUL).
const COMM_BYTES_MAX: usize = 15;

/// Tasks whose events are recorded: all, if nothing is named. If `processes` or `cgroup` are named a task must be of
/// these; if `comms` are named it must have one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Process ids: their threads, and what these make.
    pub processes: Vec<i32>,
    /// A control group and those below it: the tasks that are in it, and what these make. A path below
    /// `/sys/fs/cgroup`, or a whole path.
    pub cgroup: Option<PathBuf>,
    /// Names of threads.
    pub comms: Vec<String>,
}

impl Scope {
    /// True if all tasks are recorded.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// The filter of events, by the names of threads.
    fn filter(&self) -> Result<Option<String>> {
        let mut terms = Vec::new();
        for comm in &self.comms {
            let problem = match comm.len() {
                0 => "no thread has an empty name",
                length if length > COMM_BYTES_MAX => {
                    "names of threads have at most 15 bytes; give the first 15"
                }
                _ if comm.contains(['"', '\n']) => "the kernel's filters take no such name",
                _ => "",
            };
            if !problem.is_empty() {
                return Err(TraceError::Scope {
                    what: format!("{comm:?}"),
                    problem: problem.to_string(),
                });
            }
            terms.push(format!("COMM == \"{comm}\""));
        }
        Ok((!terms.is_empty()).then(|| terms.join(" || ")))
    }

    /// Threads of the processes and of the control group that run now.
    fn threads(&self) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        for process in &self.processes {
            let threads = numbers(Path::new(&format!("/proc/{process}/task")));
            if threads.is_empty() {
                return Err(TraceError::Scope {
                    what: format!("process {process}"),
                    problem: "no such process runs".to_string(),
                });
            }
            found.extend(threads);
        }
        if let Some(cgroup) = &self.cgroup {
            let before = found.len();
            members(&folder(cgroup)?, &mut found);
            if found.len() == before {
                return Err(TraceError::Scope {
                    what: format!("control group {}", cgroup.display()),
                    problem: "no task is in it".to_string(),
                });
            }
        }
        Ok(found)
    }

    /// Lets an instance record these tasks only.
    pub(super) fn apply(&self, instance: &Instance) -> Result<()> {
        if let Some(filter) = self.filter()? {
            instance.set("events/kmem/filter", &filter)?;
        }
        if self.processes.is_empty() && self.cgroup.is_none() {
            return Ok(());
        }
        if !in_first_pid_namespace() {
            return Err(TraceError::Scope {
                what: "thread ids of this container".to_string(),
                problem:
                    "the kernel knows them by other numbers; record outside of it, or give --comm"
                        .to_string(),
            });
        }
        instance.set("options/event-fork", "1")?;
        // Twice: one that was made before the first were known to the kernel may be a child of these.
        for _ in 0..2 {
            for thread in self.threads()? {
                match instance.add("set_event_pid", &thread.to_string()) {
                    // It has ended.
                    Err(TraceError::Record { source, .. })
                        if source.raw_os_error() == Some(NO_SUCH_PROCESS) => {}
                    added => added?,
                }
            }
        }
        Ok(())
    }

    /// States what a recording lacks.
    pub(super) fn assumption(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.processes.is_empty() {
            let ids: Vec<String> = self.processes.iter().map(i32::to_string).collect();
            parts.push(format!("of process {} and its children", ids.join(", ")));
        }
        if let Some(cgroup) = &self.cgroup {
            parts.push(format!(
                "of the tasks that were in control group {} at the begin, and their children",
                cgroup.display()
            ));
        }
        if !self.comms.is_empty() {
            parts.push(format!("of threads called {}", self.comms.join(", ")));
        }
        (!parts.is_empty()).then(|| {
            format!(
                "only events {} are here: frees by other tasks are missing, and what those free seems to stay \
                 allocated",
                parts.join(", ")
            )
        })
    }
}

/// `ESRCH`.
const NO_SUCH_PROCESS: i32 = 3;

/// Numbers among the names in a folder.
fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.collect()
}

/// The folder of a control group.
fn folder(cgroup: &Path) -> Result<PathBuf> {
    let below = cgroup.strip_prefix("/").unwrap_or(cgroup);
    let places = CGROUPS.iter().map(|mount| Path::new(mount).join(below));
    let whole = cgroup.is_absolute().then(|| cgroup.to_path_buf());
    let mut places = whole.into_iter().chain(places);
    let is_group = |place: &PathBuf| {
        ["cgroup.procs", "tasks"]
            .iter()
            .any(|file| place.join(file).exists())
    };
    places.find(is_group).ok_or_else(|| TraceError::Scope {
        what: format!("control group {}", cgroup.display()),
        problem:
            "there is no such folder below /sys/fs/cgroup; /proc/PID/cgroup names that of a process"
                .to_string(),
    })
}

/// Adds the threads in a control group and in those below it.
fn members(folder: &Path, found: &mut Vec<i32>) {
    // Version 2 and threaded groups, version 1, and groups whose threads are not listed.
    let read = |name: &str| -> io::Result<Vec<i32>> {
        let text = fs::read_to_string(folder.join(name))?;
        Ok(text
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect())
    };
    if let Ok(threads) = read("cgroup.threads").or_else(|_| read("tasks")) {
        found.extend(threads);
    } else {
        let processes = read("cgroup.procs").unwrap_or_default();
        let threads = processes
            .iter()
            .flat_map(|process| numbers(Path::new(&format!("/proc/{process}/task"))));
        found.extend(threads);
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_comms(comms: &[&str]) -> Scope {
        Scope {
            comms: comms.iter().map(ToString::to_string).collect(),
            ..Scope::default()
        }
    }

    #[test]
    fn names_become_a_filter_of_the_kernel() {
        let filter = |comms: &[&str]| of_comms(comms).filter().map_err(|error| error.to_string());
        assert_eq!(filter(&[]), Ok(None));
        let two = "COMM == \"make\" || COMM == \"cc1 -O\"";
        assert_eq!(filter(&["make", "cc1 -O"]), Ok(Some(two.to_string())));
        for (name, part) in [
            ("", "empty"),
            ("a\"b", "filters take no such name"),
            ("systemd-resolved", "at most 15 bytes"),
        ] {
            let message = filter(&[name]).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_group_has_the_tasks_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cgroup.procs", "7\n");
        write("cgroup.threads", "7\n8\n");
        write("below/tasks", "9\n");
        let scope = Scope {
            cgroup: Some(dir.path().to_path_buf()),
            ..Scope::default()
        };
        assert_eq!(scope.threads().unwrap(), [7, 8, 9]);
        let said = scope.assumption().unwrap();
        assert!(said.contains("frees by other tasks are missing"), "{said}");
    }

    #[test]
    fn what_does_not_run_is_refused() {
        let absent = Scope {
            processes: vec![i32::MAX],
            ..Scope::default()
        };
        let message = absent.threads().unwrap_err().to_string();
        assert!(message.contains("no such process runs"), "{message}");
        let absent = Scope {
            cgroup: Some("no/such/group".into()),
            ..Scope::default()
        };
        let message = absent.threads().unwrap_err().to_string();
        assert!(message.contains("no/such/group"), "{message}");
        assert!(Scope::default().is_whole() && Scope::default().assumption().is_none());
    }
}
