//! The workloads that are recorded, as data, and how one is run.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A program, the Debian package it comes with, and its arguments.
pub(super) struct Program {
    name: &'static str,
    package: &'static str,
    arguments: &'static [&'static str],
}

/// A server and the port it will listen on.
pub(super) struct Server {
    program: Program,
    port: u16,
}

/// One workload: a client, with a server if it needs one.
pub(super) struct Workload {
    /// What the recording is called.
    pub(super) name: &'static str,
    server: Option<Server>,
    client: Program,
    /// It makes hardly any slab: its objects live short, and caches are warm after its first run.
    reuses_slabs: bool,
}

/// Every workload, sized to come to a few hundred thousand events.
pub(super) static ALL: [Workload; 3] = [
    Workload {
        name: "tbench",
        server: Some(Server {
            program: Program {
                name: "tbench_srv",
                package: "dbench",
                arguments: &[],
            },
            port: 7003,
        }),
        client: Program {
            name: "tbench",
            package: "dbench",
            arguments: &["-R", "60", "-t", "1", "2", "127.0.0.1"],
        },
        reuses_slabs: true,
    },
    Workload {
        name: "hackbench",
        server: None,
        client: Program {
            name: "hackbench",
            package: "rt-tests",
            arguments: &["-s", "1024", "-l", "20", "-g", "8", "-f", "20", "-P"],
        },
        reuses_slabs: false,
    },
    Workload {
        name: "kv",
        server: Some(Server {
            program: Program {
                name: "redis-server",
                package: "redis-server",
                arguments: &[
                    "--port",
                    "16390",
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ],
            },
            port: 16390,
        }),
        client: Program {
            name: "redis-benchmark",
            package: "redis-tools",
            arguments: &[
                "-h",
                "127.0.0.1",
                "-p",
                "16390",
                "-t",
                "set,get",
                "-n",
                "7500",
                "-c",
                "20",
                "-q",
            ],
        },
        reuses_slabs: false,
    },
];

const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Frees that wait for a grace period still belong to the workload.
const SETTLE: Duration = Duration::from_millis(300);

/// Socket pairs that make a few dozen slabs.
const SOCKET_PAIRS: usize = 256;

/// Finds a workload by its name.
pub(super) fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}

impl Program {
    fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(self.name);
        command
            .args(self.arguments)
            .current_dir(dir)
            .stdin(Stdio::null());
        command
    }

    fn check(&self) -> Result<()> {
        if shell::find_tool(self.name).is_none() {
            bail!(
                "`{}` is not installed: on Debian, `apt-get install {}`",
                self.name,
                self.package
            );
        }
        Ok(())
    }

    fn version(&self) -> Result<String> {
        if shell::find_tool("dpkg-query").is_none() {
            return Ok(format!("{}: version unknown", self.name));
        }
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${Package} ${Version}", self.package]);
        Ok(format!("{}: {}", self.name, shell::output(&mut query)?))
    }
}

impl Workload {
    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.server
            .iter()
            .map(|server| &server.program)
            .chain([&self.client])
    }

    /// Names what has to be installed first.
    pub(super) fn check_tools(&self) -> Result<()> {
        self.programs().try_for_each(Program::check)
    }

    /// The versions of the programs, from the package manager.
    pub(super) fn tool_versions(&self) -> Result<Vec<String>> {
        self.programs().map(Program::version).collect()
    }

    /// The programs as one would type them, joined by `&`.
    pub(super) fn command_line(&self) -> String {
        let lines = self.programs().map(|program| {
            let mut command = Command::new(program.name);
            shell::display(command.args(program.arguments))
        });
        lines.collect::<Vec<_>>().join(" & ")
    }

    /// What has to be in the recording before the workload. The importer tells slabs from other
    /// pages by the objects on them, and has to see slabs being made.
    pub(super) fn prepare(&self) -> Result<()> {
        if self.reuses_slabs {
            let pairs = (0..SOCKET_PAIRS).map(|_| UnixStream::pair());
            let pairs: std::io::Result<Vec<_>> = pairs.collect();
            pairs.context("cannot open sockets: raise the limit of open files (ulimit -n)")?;
        }
        Ok(())
    }

    /// Starts the server, waits for it, runs the client and ends the server.
    pub(super) fn run(&self, dir: &Path) -> Result<()> {
        let server = self
            .server
            .as_ref()
            .map(|server| Running::start(server, dir))
            .transpose()?;
        shell::run(&mut self.client.command(dir))?;
        drop(server);
        thread::sleep(SETTLE);
        Ok(())
    }
}

/// A server of ours; it ends when this is dropped.
struct Running(Child);

impl Running {
    fn start(server: &Server, dir: &Path) -> Result<Self> {
        drop(
            TcpListener::bind(("127.0.0.1", server.port)).with_context(|| {
                format!(
                    "port {} is taken: end the program that listens on it",
                    server.port
                )
            })?,
        );
        let name = server.program.name;
        let child = server.program.command(dir).stdout(Stdio::null()).spawn();
        let mut running = Self(child.with_context(|| format!("cannot start {name}"))?);
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_listening(server.port) {
            if let Some(status) = running.0.try_wait()? {
                bail!("{name} ended at once with {status}");
            }
            if Instant::now() > deadline {
                bail!(
                    "{name} does not listen on port {} after {START_TIMEOUT:?}",
                    server.port
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks the kernel, not the server: a connection would be part of the workload.
fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|path| fs::read_to_string(path).is_ok_and(|table| has_listener(&table, port)))
}

fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(1).is_some_and(|local| local.ends_with(&port)) && columns.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:4006 00000000:0000 0A 0:0\n   1: 0100007F:1B5B 0100007F:9 01 0:0\n";
        assert!(has_listener(table, 0x4006));
        assert!(!has_listener(table, 0x1B5B));
        assert!(!has_listener(table, 1));
    }

    #[test]
    fn names_are_unique_and_lines_complete() {
        for workload in &ALL {
            assert_eq!(
                ALL.iter()
                    .filter(|other| other.name == workload.name)
                    .count(),
                1
            );
            assert!(workload.command_line().contains(workload.client.name));
        }
        assert_eq!(
            find("kv").unwrap().command_line().split(" & ").next(),
            Some("redis-server --port 16390 --bind 127.0.0.1 --save '' --appendonly no")
        );
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error() {
        let server = Server {
            program: Program {
                name: "true",
                package: "coreutils",
                arguments: &[],
            },
            port: 1,
        };
        assert!(Running::start(&server, Path::new("/")).is_err());
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let program = Program {
            name: "no-such-program-here",
            package: "some-package",
            arguments: &[],
        };
        assert!(
            program
                .check()
                .unwrap_err()
                .to_string()
                .contains("apt-get install some-package")
        );
    }
}
