//! Questions about a snapshot.

use quarry_ask::{Axis, DesignName, Listed, PageBytes, Release, Settings, cells, choice, question};
use quarry_snapshot::{Asked, Snapshot};

use super::At;
use super::answers::{Answer, Answers, Cost, How, InputSize, OfInput, Ready};
use crate::error::LabError;
use quarry_state::{Config, Fit, Prediction, Question, State, refused};

question! {
    /// Facts that the file of a snapshot may lack.
    pub struct Known {
        /// The release of the snapshot's kernel, if its file does not have it.
        kernel: Axis<Release>, value("RELEASE");
        /// CPUs that the snapshot's machine has, if its file does not have them.
        had_cpus: Axis<u32>, value("N");
        /// Page size of the snapshot's machine, if its file does not have it: 4k, 16k, 64k.
        had_page_size: Axis<PageBytes>, value("BYTES");
    }
}

impl Known {
    /// The snapshot with these facts.
    ///
    /// # Errors
    ///
    /// [`LabError::Report`] if its file has others.
    pub fn applied(&self, snapshot: Snapshot) -> Result<Snapshot, LabError> {
        Ok(snapshot.asked(&Asked {
            release: self.kernel.one().map(|release| release.text().to_string()),
            cpus: self.had_cpus.one().copied(),
            page_bytes: self.had_page_size.one().map(|size| size.0),
        })?)
    }
}

choice!(At, At::ALL);

question! {
    /// A real kernel's slab memory in every release or design with every page size, number of CPUs and combination of listed
    /// tunables. What is not asked is the snapshot's own.
    pub struct WhatIf {
        /// Stage of a recorded boot; the first by default.
        stage: Axis<String>, value("NAME");
        /// Snapshot of a trace: what the kernel held at the begin or at the end of the load; the last it has by default.
        at: Axis<At>, value("WHEN"), not_with(&["stage"]);
        /// Facts that the file lacks.
        known: Known;
        /// Answer although the formulas give fewer than 70 % of the caches their slabs.
        force: Axis<bool>;
        /// Other releases of Linux, 2.6.22 or later, each with the design and the rules that it has.
        release: Axis<Release>, value("RELEASE"), inner(), not_with(&["design"]);
        /// Other designs or eras, separated by commas; the snapshot's own by default.
        design: Axis<DesignName>, value("DESIGN[@ERA]"), inner();
        /// Other page sizes: 4k, 16k, 64k, separated by commas.
        page_size: Axis<PageBytes>, value("BYTES"), inner();
        /// Other numbers of possible CPUs (nr_cpu_ids), which eras until 5.9 choose orders by. Each brings objects, whose
        /// number is a guess. As many as the snapshot has by default.
        possible_cpus: Axis<u32>, value("N"), inner();
        /// Other numbers of CPUs, separated by commas; present and possible ones.
        cpus: Axis<u32>, value("N"), inner();
        /// Set a tunable; may be repeated. `quarry tunables` lists them. A list, cpu_partial=0,6,13, has a prediction for
        /// each value beside the one without; several lists have one for each combination. slub_debug=FZP asks for the
        /// snapshot with other debugging, slub_debug= for it without.
        set: Settings, value("[DESIGN[@ERA].]NAME=VALUE[,...]");
        /// Add what an option of the kernel's configuration costs or saves, such as MEMCG=n or RANDOM_KMALLOC_CACHES=y; may
        /// be repeated.
        config: Listed<Config>, value("NAME=y|n");
        /// Add up this many guests, each with such a kernel: they share no slab. What each boot has by chance evens out.
        guests: Axis<u64>, value("N");
    }
}

impl WhatIf {
    /// The questions, in the order of the answers.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a release does not have a design, or debugging is asked twice.
    pub fn questions(&self) -> Result<Vec<Question>, LabError> {
        let cells = cells(self, |field| field.inner);
        cells.iter().map(Self::question).collect()
    }

    /// The question of a cell.
    fn question(&self) -> Result<Question, LabError> {
        let set = self.set.parsed().map_err(LabError::Usage)?;
        if let [first, second, ..] = set.debug.as_slice() {
            return Err(LabError::Usage(format!(
                "set slub_debug={first} and slub_debug={second}: a kernel has one; name several caches as in FZ,kmalloc-*;U,dentry"
            )));
        }
        if self.guests.one() == Some(&0) {
            return Err(LabError::Usage("--guests must be at least 1".to_string()));
        }
        let design = self.design.one().map(|name| name.in_era(None)).transpose();
        Ok(Question {
            design: design?,
            release: self.release.one().map(|release| release.era),
            page_bytes: self.page_size.one().map(|size| size.0),
            cpus: self.cpus.one().copied(),
            possible_cpus: self.possible_cpus.one().copied(),
            set: self.set.varied_short(),
            settings: set.single,
            debug: set.debug.first().cloned(),
            configs: self.config.0.clone(),
            guests: self.guests.one().copied(),
        })
    }

    /// Answers all questions.
    ///
    /// # Errors
    ///
    /// As [`Self::questions`] and [`State::on`]; [`LabError::Report`] if the snapshot has no slabs, or, unless it
    /// is forced, if the formulas explain too few of its caches.
    pub fn ask(&self, snapshot: &Snapshot) -> Result<Vec<Prediction>, LabError> {
        let questions = self.questions()?;
        let state = State::of(snapshot)?;
        let ask = |question| self.answer(&state, snapshot, question);
        questions.iter().map(ask).collect()
    }

    /// Answers one of the questions about a snapshot with its state.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn answer(
        &self,
        state: &State<'_>,
        snapshot: &Snapshot,
        question: &Question,
    ) -> Result<Prediction, LabError> {
        let prediction = state.on(question)?;
        if let (false, Fit::Bad(cause)) = (self.force.is_true(), prediction.fit(snapshot)) {
            // Nothing can be said of other kernels then.
            let forced = match snapshot.is_32_bit() {
                true => "",
                false => "; --force answers all the same",
            };
            let what = format!(
                "the formulas of {} give {} of {} caches their slabs: {cause}{forced}",
                prediction.snapshot_design,
                prediction.explained_caches,
                snapshot.slabinfo.rows.len()
            );
            return Err(refused(snapshot, what).into());
        }
        Ok(prediction)
    }
}

impl Answers for WhatIf {
    fn of_input(&self) -> OfInput {
        OfInput {
            stage: self.stage.one().cloned(),
            at: self.at.one().copied(),
            known: self.known.clone(),
        }
    }

    fn check(&self) -> Result<(), LabError> {
        self.questions().map(drop)
    }

    /// A snapshot of some thousand caches with its state.
    fn cost(&self, _: InputSize) -> Cost {
        Cost {
            reading_ms: 40,
            ms: 4,
            bytes: 32 << 20,
        }
    }

    fn answer(&self, ready: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let Ready::Snapshot(snapshot, state) = ready else {
            return Err(LabError::Usage("what-if needs a snapshot".to_string()));
        };
        let questions = self.questions()?;
        let answer = |question| WhatIf::answer(self, state, snapshot, question);
        let told: Vec<Prediction> = questions.iter().map(answer).collect::<Result<_, _>>()?;
        Answer::apart(told, |told| std::mem::take(&mut told.caches), how)
    }
}
