//! Quarry for Python: the crates as the module `quarry._quarry`, which the package `quarry` exports.
//!
//! Nothing here decides anything about kernels: a call turns its arguments into a request of the crates, lets other
//! threads of Python run meanwhile, and turns the answer into a [`table::PyTable`].

mod args;
mod arrow;
mod ask;
mod command;
mod error;
mod events;
mod geometry;
mod look;
mod recording;
mod running;
mod snapshot;
mod sweep;
mod table;

use pyo3::prelude::*;

/// Compiled part of the package `quarry`.
#[pymodule]
mod _quarry {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::ask::run;
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::error::{Error, InputError, InternalError, MemoryExhaustedError, UsageError};
    #[pymodule_export]
    use crate::events::Events;
    #[pymodule_export]
    use crate::geometry::geometry;
    #[pymodule_export]
    use crate::look::{Look, look};
    #[pymodule_export]
    use crate::recording::Recording;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::sweep::{
        Sweep, check_plan, examine, failed_chunk, input_names, read_plan, read_results, run_chunk,
        write_files,
    };
    #[pymodule_export]
    use crate::table::{PyTable, unpickled};

    /// Prepares the process.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        quarry_trace::hush_guarded();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
