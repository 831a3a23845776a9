//! Samples of the rings to events of the trace.

use std::fs::File;

use crate::build::TraceBuilder;
use crate::error::Result;
use crate::events::Decoder;
use crate::events::footer::FooterDecoder;
use crate::events::names::{Symbols, Tasks};
use crate::import::refills::Refills;

/// Trace under construction, and the tables that samples are read by.
pub(super) struct Sink {
    pub(super) trace: TraceBuilder<File>,
    pub(super) refills: Refills,
    pub(super) decoder: Decoder,
    pub(super) footer: FooterDecoder,
    pub(super) tasks: Tasks,
    pub(super) symbols: Symbols,
}

impl Sink {
    /// Adds a sample; `stack` has the bytes of its call stack's addresses.
    pub(super) fn take(
        &mut self,
        cpu: u16,
        time_ns: u64,
        sample: &[u8],
        stack: Option<&[u8]>,
    ) -> Result<()> {
        if self.tasks.take(sample) {
            return Ok(());
        }
        if let Some(event) = self.footer.take(sample) {
            let meta = self.trace.meta_mut();
            meta.add_footer_event(event, cpu, time_ns);
            return Ok(());
        }
        let site = self.decoder.call_site(sample);
        let Some(mut event) = self.decoder.decode(sample) else {
            self.trace.meta_mut().other_events += 1;
            return Ok(());
        };
        (event.cpu, event.time_ns) = (cpu, time_ns);
        (event.call_site, event.stack) = self.symbols.caller(site, stack);
        event.pid = event.pid.max(0);
        event.comm = self.tasks.name(event.pid);
        self.refills.push(&event, &mut self.trace)
    }
}
