//! The threads: what each asked, its experiments, its tables and claims.

mod loads;
mod pages64k_2020;
mod rx_2017;
mod slubq_2010;
mod tbench_2007;
mod wakeup_2007;

use crate::error::ReproduceError;
use crate::others::Other;
use crate::plan::Experiment;
use crate::results::Results;
use crate::setting::Mode;
use crate::show::{Plot, Table};
use crate::spec::ClaimSpec;

/// A thread of a mailing list.
pub struct Thread {
    /// Its name on the command line.
    pub name: &'static str,
    /// Title, with the date.
    pub title: &'static str,
    /// The thread's question, in two sentences.
    pub question: &'static str,
    /// Numbers of the thread that the simulation was given.
    pub taken: &'static str,
    /// Explanation of the result.
    pub why: &'static str,
    pub(crate) experiments: fn(Mode) -> Vec<Experiment>,
    pub(crate) claims: fn() -> Vec<ClaimSpec>,
    /// Changes that the publication does not rule out, and that might decide.
    pub(crate) others: fn() -> Vec<Other>,
    pub(crate) show: fn(&Results) -> (Vec<Table>, Vec<Plot>),
}

/// All threads, oldest question first.
pub const THREADS: [Thread; 5] = [
    tbench_2007::THREAD,
    slubq_2010::THREAD,
    pages64k_2020::THREAD,
    wakeup_2007::THREAD,
    rx_2017::THREAD,
];

static ALL: [Thread; 5] = THREADS;

/// The thread with a name; with `all` all of them.
///
/// # Errors
///
/// [`ReproduceError::Thread`] if there is none.
pub fn find(name: &str) -> Result<Vec<&'static Thread>, ReproduceError> {
    if name == "all" {
        return Ok(ALL.iter().collect());
    }
    let found = ALL.iter().find(|thread| thread.name == name);
    found.map(|thread| vec![thread]).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|thread| thread.name).collect();
        ReproduceError::Thread {
            name: name.to_string(),
            known: known.join(", "),
        }
    })
}
