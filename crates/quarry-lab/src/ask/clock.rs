//! Simulated time: the machine, and what is left to chance.

use quarry_ask::{Axis, MachineFile, Rank, question};
use quarry_machines::{DEFAULT_MACHINE, Draw, Machine, MachineError};

question! {
    /// Machine whose time is simulated, and what is left to chance.
    pub struct Clock {
        /// Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the CPUs: a part of a
        /// socket, or whole sockets.
        machine: Axis<MachineFile> = DEFAULT_MACHINE, value("NAME|FILE"), rank(Rank::First);
        /// Draw of the machine's constants in their ranges; 0 are their values.
        draw: Axis<u32> = "0", value("N"), rank(Rank::Last);
        /// Decides what is left to chance, such as which of several waiting CPUs is first.
        seed: Axis<u64> = "1", value("N"), rank(Rank::Last);
    }
}

impl Clock {
    /// The machine, and the place of its constants in their ranges.
    ///
    /// # Errors
    ///
    /// [`MachineError`] if the usual machine is not there.
    pub fn machine(&self) -> Result<(Machine, Draw), MachineError> {
        let machine = match self.machine.one() {
            Some(file) => file.machine.clone(),
            None => Machine::bundled(DEFAULT_MACHINE)?,
        };
        let draw = machine.draw(self.draw.or(0));
        Ok((machine, draw))
    }
}
