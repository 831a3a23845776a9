//! The measurements.

pub mod alone;
pub mod loads;
pub mod pin;
pub mod ring;
pub mod threads;
pub mod transfer;

use crate::error::CalibrateError;
use crate::sample::{Effort, Sample};
use crate::sysfs::{Computer, Core};

pub use pin::usable_cpus;

/// The steps of a calibration, in their order.
pub(crate) const STEPS: [&str; 6] = [
    "clock of the core",
    "caches",
    "memory",
    "lines between CPUs",
    "copies and atomic operations",
    "system calls and switches",
];

/// Figures of two CPUs of one distance, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// The CPUs.
    pub cpus: [u32; 2],
    /// A line that the other one has unchanged.
    pub clean: Sample,
    /// A line that it has changed.
    pub dirty: Sample,
    /// A write to a line that both have.
    pub upgrade: Sample,
}

/// All figures: nanoseconds, unless their names say something else.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Cycles in a nanosecond.
    pub ghz: Sample,
    /// Loads that wait for each other, from each cache that there is.
    pub l1: Sample,
    /// See `l1`.
    pub l2: Option<Sample>,
    /// See `l1`.
    pub llc: Option<Sample>,
    /// See `l1`.
    pub memory: Sample,
    /// Memory of another node.
    pub memory_remote: Option<Sample>,
    /// Lines that are fetched at a time.
    pub misses_lines: Sample,
    /// CPUs of the same cluster, of two clusters of a socket, of two sockets.
    pub between: [Option<Between>; 3],
    /// A locked addition, beyond a store.
    pub atomic: Sample,
    /// 1024 bytes that are filled with zeros, and copied.
    pub fill_kib: Sample,
    /// See `fill_kib`.
    pub copy_kib: Sample,
    /// A call into the kernel that does next to nothing.
    pub syscall: Sample,
    /// A message through a Unix socket, without its two calls.
    pub unix_message: Option<Sample>,
    /// From one thread to another of the same CPU, by futex.
    pub switch: Sample,
    /// The same to a thread of another CPU, which sleeps.
    pub wake: Option<Sample>,
}

/// Measures all of them on the CPUs that may be used.
///
/// # Errors
///
/// [`CalibrateError`]: no CPU may be used, or a thread cannot choose its CPU.
pub fn all(
    computer: &Computer,
    usable: &[u32],
    effort: Effort,
    tell: &mut dyn FnMut(&str),
) -> Result<Figures, CalibrateError> {
    let cores: Vec<Core> = computer
        .cores
        .iter()
        .copied()
        .filter(|core| usable.contains(&core.cpu))
        .collect();
    let Some(&first) = cores.first() else {
        let cpus: Vec<String> = computer
            .cores
            .iter()
            .map(|core| core.cpu.to_string())
            .collect();
        return Err(CalibrateError::NoCpu(cpus.join(", ")));
    };
    let cpu = first.cpu;
    let others = partners(&cores, first);
    tell(STEPS[0]);
    let ghz = pin::on(cpu, || alone::ghz(effort))?;
    tell(STEPS[1]);
    let rings = loads::Rings::of(computer, effort);
    let near = |ring| pin::on(cpu, move || loads::latency(ring, effort));
    let l1 = near(rings.l1)?;
    let l2 = rings.l2.map(near).transpose()?;
    let llc = rings.llc.map(near).transpose()?;
    tell(STEPS[2]);
    let memory = loads::memory(cpu, cpu, rings.memory, effort)?;
    let remote = others[2].filter(|_| computer.nodes > 1);
    let remote = remote
        .map(|other| loads::memory(cpu, other.cpu, rings.memory, effort))
        .transpose()?;
    // Neighbours that fill the last cache make of its hits what memory costs: the fastest round is none of these.
    let llc = llc.map(|llc| match llc.value > memory.latency.value {
        true => Sample {
            value: llc.low,
            ..llc
        },
        false => llc,
    });
    tell(STEPS[3]);
    let between = others
        .map(|other| other.map(|other| transfer::between([other.cpu, cpu], rings.memory, effort)));
    let [cluster, socket, far] = between.map(Option::transpose);
    tell(STEPS[4]);
    let atomic = pin::on(cpu, || alone::atomic(effort))?;
    let (fill_kib, copy_kib) = pin::on(cpu, || (alone::fill_kib(effort), alone::copy_kib(effort)))?;
    tell(STEPS[5]);
    let other = cores.get(1).map(|core| core.cpu);
    let syscall = pin::on(cpu, || threads::syscall(effort))?;
    Ok(Figures {
        ghz,
        l1,
        l2,
        llc,
        memory: memory.latency,
        memory_remote: remote.map(|remote| remote.latency),
        misses_lines: memory.misses_lines,
        between: [cluster?, socket?, far?],
        atomic,
        fill_kib,
        copy_kib,
        syscall,
        unix_message: pin::on(cpu, move || threads::unix_message(syscall, effort))?,
        switch: threads::wake([cpu, cpu], effort)?,
        wake: other
            .map(|other| threads::wake([cpu, other], effort))
            .transpose()?,
    })
}

/// The first core of the same cluster, of another cluster of the socket, and of another socket.
fn partners(cores: &[Core], first: Core) -> [Option<Core>; 3] {
    let find = |is: &dyn Fn(&Core) -> bool| {
        cores
            .iter()
            .copied()
            .find(|core| core.cpu != first.cpu && is(core))
    };
    [
        find(&|core| core.cluster == first.cluster),
        find(&|core| core.cluster != first.cluster && core.socket == first.socket),
        find(&|core| core.socket != first.socket),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_found_for_each_distance() {
        let core = |(cpu, socket, cluster)| Core {
            cpu,
            socket,
            cluster,
        };
        let cores = [(2, 0, 0), (3, 0, 0), (4, 0, 1), (9, 1, 2)].map(core);
        let cpus = partners(&cores, cores[0]).map(|core| core.map(|core| core.cpu));
        assert_eq!(cpus, [Some(3), Some(4), Some(9)]);
        let cpus = partners(&cores[..1], cores[0]);
        assert_eq!(cpus, [None; 3]);
    }
}
