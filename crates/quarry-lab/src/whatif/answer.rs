//! The answer in sentences, and what JSON outputs say of the snapshot.

use std::collections::BTreeMap;

use quarry_snapshot::Snapshot;
use quarry_view::Form;
use quarry_view::units::{bytes, count, counted, signed};
use schemars::JsonSchema;
use serde::Serialize;

use crate::known;
use quarry_state::{Fit, Guests, KNOWN_ERRORS, Prediction};

/// A snapshot.
#[derive(JsonSchema, Serialize)]
pub struct SnapshotInfo<'a> {
    /// File.
    pub file: &'a str,
    /// Stage, if the file has one.
    pub stage: Option<&'a str>,
    /// Form of the file, such as `snapshot`, `slabinfo`, `sosreport` or `slabtop`.
    pub form: &'a str,
    /// Release; null if unknown.
    pub kernel: Option<&'a str>,
    /// Releases that the kernel can be of by the names of its caches, if its release is unknown; null if known.
    pub kernel_range: Option<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs; null if unknown.
    pub cpus: Option<u32>,
    /// Reasons of what no file says, by field: `kernel_range`, `page_size`, `cpus`.
    pub guesses: BTreeMap<&'static str, String>,
    /// Sentences about how the file was read and what it lacks.
    pub notes: Vec<String>,
    /// Errors in per cent, from and to, that predictions had where the real memory was known.
    pub known_errors_percent: [i32; 2],
    /// Bytes of all slabs.
    pub slab_bytes: u64,
}

impl<'a> SnapshotInfo<'a> {
    /// The facts of a snapshot.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            file: &snapshot.file,
            stage: snapshot.stage.as_deref(),
            form: snapshot.form.name(),
            kernel: snapshot.release.as_deref(),
            kernel_range: snapshot.releases.map(|releases| releases.to_string()),
            page_size: snapshot.page_bytes,
            cpus: snapshot.present_cpus,
            guesses: known::guesses(snapshot),
            notes: known::notes(snapshot),
            known_errors_percent: KNOWN_ERRORS,
            slab_bytes: snapshot.slab_bytes(),
        }
    }
}

/// The machine of the snapshot, and how well the formulas fit it; a sentence each.
#[must_use]
pub fn about(snapshot: &Snapshot, predictions: &[Prediction]) -> Vec<String> {
    let stage = snapshot.stage.as_deref();
    let stage = stage.map_or(String::new(), |stage| format!(", stage {stage}"));
    let machine = known::machine(snapshot);
    let mut told = vec![format!("{}{stage}: {machine}", snapshot.file)];
    if let Some(first) = predictions.first() {
        told.push(format!(
            "taken as {}: its formulas give the slabs of {} of {} caches",
            first.snapshot_design,
            first.explained_caches,
            snapshot.slabinfo.rows.len(),
        ));
        if let Fit::Doubtful(cause) | Fit::Bad(cause) = first.fit(snapshot) {
            let percent = first.fit_percent(snapshot);
            told.push(format!("warning: that is {percent:.0} %: {cause}"));
        }
    }
    told
}

/// The answer to one question; of several the ends of what is predicted. Of a list that is not whole it says what it lacks.
#[must_use]
pub fn finding(snapshot: &Snapshot, predictions: &[Prediction]) -> String {
    let told = of_all(predictions);
    match (snapshot.unlisted_bytes(), told.is_empty()) {
        (0, _) | (_, true) => told,
        (unlisted, false) => format!(
            "{told} That is of the {} listed; {} of meminfo's Slab are not in it.",
            counted(snapshot.slabinfo.rows.len(), "cache"),
            bytes(unlisted)
        ),
    }
}

fn of_all(predictions: &[Prediction]) -> String {
    let by_bytes = |told: &&Prediction| told.bytes.predicted_bytes;
    let ends = predictions
        .iter()
        .min_by_key(by_bytes)
        .zip(predictions.iter().max_by_key(by_bytes));
    let Some((least, most)) = ends else {
        return String::new();
    };
    if predictions.len() == 1 {
        return answer(least);
    }
    let told = |told: &Prediction| {
        let set = match told.set.as_str() {
            "" => String::new(),
            set => format!(" ({set})"),
        };
        let sum = Sum::of(told);
        format!(
            "{} ({}) with {}{set}, {} pages and {}",
            bytes(sum.all.bytes.predicted_bytes),
            sum.change(sum.all.bytes.predicted_bytes),
            told.design,
            bytes(told.page_size),
            cpus(told)
        )
    };
    let [low, high] = [least, most].map(Sum::of);
    // What is likely tells them apart if it does not meet.
    let certain = match low.all.bytes.likely_high_bytes < high.all.bytes.likely_low_bytes {
        true => "what is likely nine times in ten does not overlap",
        false => "but what is likely nine times in ten overlaps",
    };
    format!(
        "{} {} now; predicted is {} at least and {} at most: {certain}.",
        low.of_whom(" is"),
        bytes(low.all.observed_bytes),
        told(least),
        told(most)
    )
}

/// The answer to one question, in a line.
fn answer(told: &Prediction) -> String {
    let sum = Sum::of(told);
    let all = &sum.all;
    let observed = all.observed_bytes;
    let to = format!(
        "{}, {} pages, {}",
        told.design,
        bytes(told.page_size),
        cpus(told)
    );
    let now = format!("{} {} now", sum.of_whom(""), bytes(observed));
    if all.bytes.ends() == [observed; 3] {
        return format!("{now}, the same with {to}: nothing differs.");
    }
    format!(
        "{now}, {} ({}) with {to}; nine times in ten between {} ({}) and {} ({}).",
        bytes(all.bytes.predicted_bytes),
        sum.change(all.bytes.predicted_bytes),
        bytes(all.bytes.likely_low_bytes),
        sum.change(all.bytes.likely_low_bytes),
        bytes(all.bytes.likely_high_bytes),
        sum.change(all.bytes.likely_high_bytes),
    )
}

/// The sums of a prediction: of one kernel, or of all guests.
struct Sum {
    all: Guests,
    is_of_guests: bool,
}

impl Sum {
    fn of(told: &Prediction) -> Self {
        let one = Guests {
            count: 1,
            observed_bytes: told.observed_bytes,
            bytes: told.bytes,
        };
        Self {
            all: told.guests.unwrap_or(one),
            is_of_guests: told.guests.is_some(),
        }
    }

    /// The beginning of a sentence, with a verb if it has one.
    fn of_whom(&self, verb: &str) -> String {
        let plural = if self.all.count == 1 { "" } else { "s" };
        match self.is_of_guests {
            true => format!("{} guest{plural}:", count(self.all.count)),
            false => format!("Slab memory{verb}"),
        }
    }

    /// By how much more or less, in per cent; of guests in bytes, too.
    fn change(&self, predicted: u64) -> String {
        let observed = self.all.observed_bytes;
        let part = match observed {
            0 => "-".to_string(),
            _ => Form::Ratio.print(predicted as f64 / observed as f64 - 1.0),
        };
        match self.is_of_guests {
            true => format!(
                "{}, {part}",
                signed(i128::from(predicted) - i128::from(observed))
            ),
            false => part,
        }
    }
}

/// CPUs of a prediction: no number if it is assumed.
fn cpus(told: &Prediction) -> String {
    match told.cpus_are_assumed {
        true => "CPUs not known".to_string(),
        false => format!("{} CPUs", told.cpus),
    }
}
