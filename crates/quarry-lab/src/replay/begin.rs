//! Heaps that begin as those of machines that have run.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_designs::{DesignEntry, DesignSpec};
use quarry_sim::Config;
use quarry_sim::driver::Driver;
use quarry_work::{Setup, Start, WorkError};

use super::initial::fill;
use crate::booted::Booted;
use crate::error::LabError;
use crate::run::RunSpec;

impl Booted {
    /// Makes the state on the heap of a load.
    fn fill_load<D: Design>(
        &self,
        setup: &Setup,
        config: &Config,
        driver: &mut Driver<'_, D>,
    ) -> Result<(), LabError> {
        let design = DesignEntry::find(D::NAME)
            .ok_or_else(|| LabError::Usage(format!("there is no design {}", D::NAME)))?;
        self.fill_run(
            &RunSpec {
                design: DesignSpec {
                    design,
                    era: setup.era,
                },
                config: *config,
                settings: setup.tuning.clone(),
                set: String::new(),
                state: setup.state,
                missing: std::collections::BTreeMap::new(),
                inspect: None,
            },
            driver,
        )
    }

    /// Makes the caches of the state, with what they hold, on the heap of a replay. No time passes meanwhile.
    pub(crate) fn fill_run<D: Design>(
        &self,
        run: &RunSpec,
        driver: &mut Driver<'_, D>,
    ) -> Result<(), LabError> {
        let snapshot = self.snapshot()?;
        let draw = self.draw(run.state);
        driver.uncounted(|driver| fill(run, draw, snapshot, driver))
    }
}

impl Start for Booted {
    fn fill<D: Design>(
        &self,
        setup: &Setup,
        config: &Config,
        driver: &mut Driver<'_, D>,
    ) -> Result<(), WorkError> {
        let filled = self.fill_load(setup, config, driver);
        filled.map_err(|error| WorkError::Start(Box::new(error)))
    }

    fn about(&self, design: &str, era: Era, config: &Config) -> Option<String> {
        self.told(design, era, config)
    }
}
