//! Two network namespaces with a cable between them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// The sender's and the receiver's address.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const MACS: [&str; 2] = ["02:00:00:77:00:01", "02:00:00:77:00:02"];

/// The namespaces. They have no names, so they go with the process, however that ends, and the
/// cable with them.
pub(crate) struct Cable {
    namespaces: [File; 2],
}

impl Cable {
    /// Makes the namespaces and a veth pair, one end in each, with fixed neighbours: the receiver
    /// takes all packets off the interface, also those that would ask for its address.
    pub(crate) fn new() -> Result<Self, String> {
        let namespace = || unshare().map_err(|error| format!("a network namespace: {error}"));
        let namespaces = [namespace()?, namespace()?];
        let [tx, rx] = &namespaces;
        let rx = format!("/proc/{}/fd/{}", std::process::id(), rx.as_raw_fd());
        ip(
            tx,
            &[
                "link", "add", "tx0", "address", MACS[0], "type", "veth", "peer", "name", "rx0",
                "address", MACS[1], "netns", &rx,
            ],
        )?;
        for (end, interface) in ["tx0", "rx0"].into_iter().enumerate() {
            let namespace = &namespaces[end];
            let address = format!("{}/24", ADDRESSES[end]);
            ip(namespace, &["address", "add", &address, "dev", interface])?;
            ip(namespace, &["link", "set", interface, "up"])?;
            ip(
                namespace,
                &[
                    "neighbour",
                    "replace",
                    ADDRESSES[1 - end],
                    "lladdr",
                    MACS[1 - end],
                    "dev",
                    interface,
                    "nud",
                    "permanent",
                ],
            )?;
        }
        Ok(Self { namespaces })
    }

    /// Moves the calling thread into the sender's namespace.
    pub(crate) fn enter_sender(&self) -> io::Result<()> {
        enter(&self.namespaces[0])
    }

    /// Moves the calling thread into the receiver's namespace and returns its interface's number.
    pub(crate) fn enter_receiver(&self) -> io::Result<u32> {
        enter(&self.namespaces[1])?;
        let name = CString::new("rx0").expect("no zero byte");
        // SAFETY: the name is a C string.
        match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            index => Ok(index),
        }
    }
}

/// A new network namespace, which exists as long as the file is open or a thread is in it.
fn unshare() -> io::Result<File> {
    let made = std::thread::spawn(|| {
        // SAFETY: only the calling thread's network namespace changes, and the thread ends.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => File::open("/proc/thread-self/ns/net"),
            _ => Err(io::Error::last_os_error()),
        }
    });
    made.join().expect("the thread does not panic")
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: only the calling thread's network namespace changes.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `ip` in a namespace, from a thread of its own, whose namespace the command inherits.
fn ip(namespace: &File, arguments: &[&str]) -> Result<(), String> {
    let shown = || format!("ip {}", arguments.join(" "));
    let run = || {
        enter(namespace)?;
        Command::new("ip")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
    };
    let output = std::thread::scope(|scope| scope.spawn(run).join());
    let output = output
        .expect("the thread does not panic")
        .map_err(|error| format!("{}: {error} (install iproute2)", shown()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", shown(), said.trim()))
}
