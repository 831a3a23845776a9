//! The exceptions, with the messages of the command.

use std::error::Error as StdError;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use quarry_lab::fault::{Fault, fault_of, message};
use quarry_sweep::SweepError;

create_exception!(
    quarry,
    Error,
    PyException,
    "Base of all exceptions of this package."
);
create_exception!(
    quarry,
    UsageError,
    Error,
    "The request names something that does not exist or is out of range: ask for something else."
);
create_exception!(
    quarry,
    InputError,
    Error,
    "A file cannot be read or written, or contradicts itself."
);
create_exception!(
    quarry,
    MemoryExhaustedError,
    Error,
    "A virtual machine had too little memory for its load: give it more."
);
create_exception!(
    quarry,
    InternalError,
    Error,
    "The library contradicts itself: please report it."
);

/// The exception for an error of the crates.
pub(crate) fn raised(error: impl StdError + 'static) -> PyErr {
    let text = message(&error);
    let of_sweep = (&error as &dyn StdError).downcast_ref();
    let fault = match of_sweep.and_then(SweepError::fault) {
        // Room for rows, not memory.
        Some(Fault::Exhausted) => Fault::Input,
        Some(fault) => fault,
        None => fault_of(&error),
    };
    match fault {
        Fault::Usage => UsageError::new_err(text),
        Fault::Exhausted => MemoryExhaustedError::new_err(text),
        Fault::Defect => InternalError::new_err(text),
        Fault::Stopped | Fault::Input => InputError::new_err(text),
    }
}

/// The exception for wrong usage.
pub(crate) fn usage(text: impl Into<String>) -> PyErr {
    UsageError::new_err(text.into())
}
