//! Two network namespaces with a cable between them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// The sender's and the receiver's address.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const MACS: [&str; 2] = ["02:00:00:77:00:01", "02:00:00:77:00:02"];

/// The namespaces, which go when this is dropped, and the cable with them.
pub(crate) struct Cable {
    names: [String; 2],
}

impl Cable {
    /// Makes the namespaces and a veth pair, one end in each, with fixed neighbours: the receiver
    /// takes all packets off the interface, also those that would ask for its address.
    pub(crate) fn new() -> Result<Self, String> {
        let id = std::process::id();
        let names = [format!("quarry-tx-{id}"), format!("quarry-rx-{id}")];
        let cable = Self { names };
        for name in &cable.names {
            ip(&["netns", "add", name])?;
        }
        let [tx, rx] = &cable.names;
        ip(&[
            "-n", tx, "link", "add", "tx0", "address", MACS[0], "type", "veth", "peer", "name",
            "rx0", "address", MACS[1], "netns", rx,
        ])?;
        for (end, interface) in ["tx0", "rx0"].into_iter().enumerate() {
            let name = &cable.names[end];
            let address = format!("{}/24", ADDRESSES[end]);
            ip(&["-n", name, "address", "add", &address, "dev", interface])?;
            ip(&["-n", name, "link", "set", interface, "up"])?;
            ip(&[
                "-n",
                name,
                "neighbour",
                "replace",
                ADDRESSES[1 - end],
                "lladdr",
                MACS[1 - end],
                "dev",
                interface,
                "nud",
                "permanent",
            ])?;
        }
        Ok(cable)
    }

    /// Moves the calling thread into the sender's namespace.
    pub(crate) fn enter_sender(&self) -> io::Result<()> {
        enter(&self.names[0])
    }

    /// Moves the calling thread into the receiver's namespace and returns its interface's number.
    pub(crate) fn enter_receiver(&self) -> io::Result<u32> {
        enter(&self.names[1])?;
        let name = CString::new("rx0").expect("no zero byte");
        // SAFETY: the name is a C string.
        match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            index => Ok(index),
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that was not made yet is no error worth a word.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn enter(name: &str) -> io::Result<()> {
    let namespace = File::open(format!("/run/netns/{name}"))?;
    // SAFETY: only the calling thread's network namespace changes.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let shown = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error} (install iproute2)", shown()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", shown(), said.trim()))
}
