//! Errors by what a user can do about them, for exit codes and exceptions.

use std::error::Error;

use quarry_designs::DesignError;
use quarry_machines::MachineError;
use quarry_trace::TraceError;
use quarry_work::WorkError;

use crate::error::LabError;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request names something that does not exist or is out of range.
    Usage,
    /// A virtual machine has too little memory.
    Exhausted,
    /// The caller ended the work.
    Stopped,
    /// The library contradicts itself.
    Defect,
    /// All else: a file that cannot be read or written, or contradicts itself.
    Input,
}

/// The kind of the first error, from the outermost to its causes, that has one of its own.
#[must_use]
pub fn fault_of(error: &(dyn Error + 'static)) -> Fault {
    causes(error).find_map(own_fault).unwrap_or(Fault::Input)
}

/// The error with its causes in one line; causes whose text is already in it are left out.
#[must_use]
pub fn message(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The error, its cause, the cause of that, and so on.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| <dyn Error>::source(*error))
}

/// The kind that the type of an error gives, whatever its causes.
#[must_use]
pub fn own_fault(error: &(dyn Error + 'static)) -> Option<Fault> {
    if let Some(error) = error.downcast_ref::<WorkError>() {
        return match error.problem() {
            WorkError::Start(error) => own_fault(&**error),
            WorkError::Usage(_) | WorkError::Refused { .. } | WorkError::NoCache { .. } => {
                Some(Fault::Usage)
            }
            WorkError::Exhausted(_) | WorkError::NoBuffers { .. } => Some(Fault::Exhausted),
            WorkError::Stopped => Some(Fault::Stopped),
            WorkError::Deadlock(_)
            | WorkError::Inconsistent(_)
            | WorkError::InconsistentCache { .. }
            | WorkError::LostObjects { .. }
            | WorkError::Lost { .. } => Some(Fault::Defect),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<LabError>() {
        return match error {
            LabError::Usage(_) | LabError::Refused { .. } => Some(Fault::Usage),
            LabError::Memory { .. } | LabError::InitialMemory { .. } => Some(Fault::Exhausted),
            LabError::Stopped => Some(Fault::Stopped),
            LabError::Deadlock { .. } => Some(Fault::Defect),
            LabError::Trace(error) => own_fault(&**error),
            LabError::Work(error) => own_fault(error),
            _ => None,
        };
    }
    let is_usage = matches!(
        error.downcast_ref(),
        Some(MachineError::Unknown { .. } | MachineError::Cpus { .. })
    ) || matches!(
        error.downcast_ref(),
        Some(TraceError::OutputExists { .. } | TraceError::Scope { .. })
    ) || error.is::<DesignError>();
    is_usage.then_some(Fault::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_kind_of_its_cause() {
        let unknown = quarry_designs::DesignSpec::parse("slbu").unwrap_err();
        assert_eq!(fault_of(&unknown), Fault::Usage);
        assert_eq!(fault_of(&LabError::from(unknown)), Fault::Usage);
        let absent = quarry_trace::TraceFile::open("absent.parquet").unwrap_err();
        let text = message(&absent);
        assert!(text.starts_with("cannot read absent.parquet"), "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        assert_eq!(fault_of(&LabError::from(absent)), Fault::Input);
        let stopped = WorkError::Run {
            run: "tbench".to_string(),
            problem: Box::new(WorkError::Stopped),
        };
        assert_eq!(fault_of(&stopped), Fault::Stopped);
    }
}
