//! Tunables as users set them: `name=value`, `design.name=value`, `design@era.name=value`.

use std::fmt;

use quarry_core::era::Era;
use quarry_core::page::SYSCTLS;
use quarry_core::tunables::{Tunable, TunableError};

use crate::{DESIGNS, DesignEntry, DesignError, DesignSpec, Tuning, list, nearest, parse_era};

/// Values of a range, at most.
const RANGE_MAX: u64 = 1000;

/// The values of an item of a list: itself, or all from the first to the last of a range.
fn numbers(text: &str, item: &str) -> Result<Vec<String>, DesignError> {
    let Some((first, last)) = item.split_once("..") else {
        return Ok(vec![item.to_string()]);
    };
    match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last && last - first < RANGE_MAX => {
            Ok((first..=last).map(|value| value.to_string()).collect())
        }
        _ => Err(DesignError(format!(
            "setting {text:?}: {item:?} is no range; write FIRST..LAST for at most {RANGE_MAX} values that rise"
        ))),
    }
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The only design it is for.
    design: Option<String>,
    /// The only era it is for.
    era: Option<Era>,
    name: String,
    value: u64,
    text: String,
}

impl fmt::Display for Setting {
    /// The setting as it was written, such as `slub@6.1.cpu_partial=0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Setting {
    /// Parses one setting; [`resolve`] then looks up the tunable.
    ///
    /// # Errors
    ///
    /// [`DesignError`] if it does not have the form of a setting.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let usage = |problem: String| {
            DesignError(format!(
                "setting {text:?}: {problem}; write NAME=VALUE, DESIGN.NAME=VALUE or \
                 DESIGN@ERA.NAME=VALUE, for example slub.cpu_partial=0"
            ))
        };
        let (left, value) = text
            .split_once('=')
            .ok_or_else(|| usage("there is no \"=\"".to_string()))?;
        let value = value
            .trim()
            .parse()
            .map_err(|_| usage(format!("{value:?} is not a number from 0 on")))?;
        // Eras have dots, names have none.
        let (scope, name) = match left.rsplit_once('.') {
            Some((scope, name)) => (Some(scope), name),
            None => (None, left),
        };
        let (design, era) = match scope.map(|scope| scope.split_once('@').unwrap_or((scope, ""))) {
            None => (None, None),
            Some((design, "")) => (Some(design.to_ascii_lowercase()), None),
            Some((design, era)) => {
                let era = parse_era(era).map_err(|error| usage(error.to_string()))?;
                (Some(design.to_ascii_lowercase()), Some(era))
            }
        };
        Ok(Self {
            design,
            era,
            name: name.trim().to_string(),
            value,
            text: text.to_string(),
        })
    }

    /// Parses a setting whose value may be a list, `cpu_partial=0,6,13`, with ranges, `slub_max_order=0..3` for 0 to 3: a
    /// setting for each value.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; also if a value is listed twice, or a range is not one.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, DesignError> {
        let is_list = |values: &str| values.contains(',') || values.contains("..");
        let Some((name, values)) = text.split_once('=').filter(|(_, of)| is_list(of)) else {
            return Ok(vec![Self::parse(text)?]);
        };
        let mut settings: Vec<Self> = Vec::new();
        let values = values.split(',').map(|value| numbers(text, value.trim()));
        for value in values.collect::<Result<Vec<_>, _>>()?.concat() {
            let setting = Self::parse(&format!("{name}={value}"))?;
            if settings.iter().any(|other| other.value == setting.value) {
                return Err(DesignError(format!(
                    "setting {text:?}: the value {} is listed twice; list each value once",
                    setting.value
                )));
            }
            settings.push(setting);
        }
        Ok(settings)
    }

    /// The same without a design, from its parts.
    #[must_use]
    pub fn of(name: &str, value: u64) -> Self {
        Self {
            design: None,
            era: None,
            name: name.to_string(),
            value,
            text: format!("{name}={value}"),
        }
    }

    /// True if it is for the page allocator: `page.NAME`.
    #[must_use]
    pub fn is_for_pages(&self) -> bool {
        self.design.as_deref() == Some(SYSCTLS.design)
    }

    /// The tunable's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name and value, without the design that it may be for: `cpu_partial=6`.
    #[must_use]
    pub fn short(&self) -> String {
        let page = if self.is_for_pages() { "page." } else { "" };
        format!("{page}{}={}", self.name, self.value)
    }

    /// True if a design has the tunable and takes the value.
    #[must_use]
    pub fn is_taken_by(&self, spec: &DesignSpec) -> bool {
        self.is_for(spec) && self.check(spec).is_ok()
    }

    /// Checks that a design of some release has the tunable and takes the value.
    ///
    /// # Errors
    ///
    /// [`DesignError`] with the nearest tunable, or the range of values.
    pub fn check_exists(&self) -> Result<(), DesignError> {
        let of = |design: &'static DesignEntry| {
            let eras = Era::ALL.into_iter();
            let eras = eras.filter(|era| design.releases.contains(era));
            eras.map(move |era| DesignSpec { design, era })
        };
        let specs = DESIGNS.iter().flat_map(of);
        let specs: Vec<DesignSpec> = specs.filter(|spec| self.is_for(spec)).collect();
        let mut refused = None;
        for spec in &specs {
            match self.check(spec) {
                Ok(_) => return Ok(()),
                Err(error @ TunableError::OutOfRange { .. }) => refused = Some(error),
                Err(TunableError::Unknown { .. }) => {}
            }
        }
        let problem = match refused {
            Some(error) => error.to_string(),
            None if specs.is_empty() => "there is no such design".to_string(),
            None => {
                let rows = match self.is_for_pages() {
                    true => SYSCTLS.rows.iter().collect::<Vec<_>>(),
                    false => {
                        let all = specs.iter().flat_map(|spec| spec.design.tunables.rows);
                        all.collect()
                    }
                };
                let near = nearest(&self.name, rows.iter().map(|row| row.tunable.name));
                let near =
                    near.map_or_else(String::new, |name| format!(" (the nearest is {name})"));
                format!("no release has such a tunable{near}; quarry tunables lists all")
            }
        };
        Err(DesignError(format!("setting {:?}: {problem}", self.text)))
    }

    fn is_for(&self, spec: &DesignSpec) -> bool {
        self.design
            .as_ref()
            .is_none_or(|name| name == spec.design.name || name == SYSCTLS.design)
            && self.era.is_none_or(|era| era == spec.era)
    }

    /// The tunable that it sets: one of the design's, or, with `page.` before its name, a sysctl.
    fn check(&self, spec: &DesignSpec) -> Result<&'static Tunable, TunableError> {
        let table = match self.is_for_pages() {
            true => &SYSCTLS,
            false => spec.design.tunables,
        };
        table.check(spec.era, &self.name, self.value)
    }
}

/// No value, then one of each list in every combination; the last list varies first.
#[must_use]
pub fn combinations(lists: &[Vec<Setting>]) -> Vec<Vec<Setting>> {
    let mut all = vec![Vec::new()];
    for list in lists {
        let longer = |chosen: &Vec<Setting>| -> Vec<Vec<Setting>> {
            let with =
                |setting: &Setting| [chosen.as_slice(), std::slice::from_ref(setting)].concat();
            list.iter().map(with).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    if !lists.is_empty() {
        all.insert(0, Vec::new());
    }
    all
}

/// The settings of each design of an experiment. A setting without a design is for those designs
/// that have such a tunable; one of them at least must.
///
/// # Errors
///
/// [`DesignError`] if nothing takes a setting, a value is out of range, or two settings contradict
/// each other or are for one tunable.
pub fn resolve(settings: &[Setting], designs: &[DesignSpec]) -> Result<Vec<Tuning>, DesignError> {
    let mut resolved = vec![Tuning::default(); designs.len()];
    let mut given: Vec<Vec<(&'static Tunable, &Setting)>> = vec![Vec::new(); designs.len()];
    for setting in settings {
        let mut taken = false;
        for ((spec, into), given) in designs.iter().zip(&mut resolved).zip(&mut given) {
            if !setting.is_for(spec) {
                continue;
            }
            match setting.check(spec) {
                Ok(tunable) => {
                    let earlier = given.iter().find(|(known, _)| *known == tunable);
                    if let Some((_, earlier)) = earlier {
                        return Err(DesignError(format!(
                            "settings {:?} and {:?} are both for {} of {spec}; give one of them",
                            earlier.text, setting.text, tunable.name
                        )));
                    }
                    given.push((tunable, setting));
                    into.set(tunable, setting.value);
                    taken = true;
                }
                Err(error @ TunableError::OutOfRange { .. }) => {
                    return Err(DesignError(format!("setting {:?}: {error}", setting.text)));
                }
                Err(TunableError::Unknown { .. }) => {}
            }
        }
        if !taken {
            return Err(no_such(setting, designs));
        }
    }
    designs
        .iter()
        .zip(&given)
        .try_for_each(|(spec, given)| check_order(spec, given))?;
    Ok(resolved)
}

/// Pairs of tunables: the first may not be above the second.
const ORDERED: [(&str, &str); 3] = [
    ("slub_min_order", "slub_max_order"),
    ("batchcount", "limit"),
    ("cpu_batch_size", "cpu_queue_size"),
];

fn check_order(spec: &DesignSpec, given: &[(&Tunable, &Setting)]) -> Result<(), DesignError> {
    let of = |name: &str| given.iter().find(|(tunable, _)| tunable.name == name);
    for (low, high) in ORDERED {
        if let (Some((_, low)), Some((_, high))) = (of(low), of(high))
            && low.value > high.value
        {
            return Err(DesignError(format!(
                "settings {:?} and {:?} contradict each other in {spec}: {} is above {}",
                low.text, high.text, low.name, high.name
            )));
        }
    }
    Ok(())
}

fn no_such(setting: &Setting, designs: &[DesignSpec]) -> DesignError {
    let mut asked = designs
        .iter()
        .filter(|spec| setting.is_for(spec))
        .peekable();
    if asked.peek().is_none() {
        return DesignError(format!(
            "setting {:?} is for a design that does not take part; designs are {}",
            setting.text,
            list(designs)
        ));
    }
    let page = setting.is_for_pages();
    let names = |spec: &DesignSpec| match page {
        true => list(
            SYSCTLS
                .of(spec.era)
                .map(|tunable| format!("page.{}", tunable.name)),
        ),
        false => list(spec.tunables().map(|tunable| tunable.name)),
    };
    let specs: Vec<&DesignSpec> = asked.collect();
    let all = specs.iter().flat_map(|spec| match page {
        true => SYSCTLS
            .of(spec.era)
            .map(|tunable| tunable.name)
            .collect::<Vec<_>>(),
        false => spec.tunables().map(|tunable| tunable.name).collect(),
    });
    let nearest = nearest(&setting.name, all);
    DesignError(format!(
        "setting {:?}: no such tunable{}; {}",
        setting.text,
        nearest.map_or_else(String::new, |name| format!(" (the nearest is {name})")),
        specs
            .iter()
            .map(|spec| match names(spec) {
                names if names.is_empty() => format!("{spec} has none"),
                names => format!("{spec} has {names}"),
            })
            .collect::<Vec<_>>()
            .join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: &[&str], designs: &[&str]) -> Result<Vec<Tuning>, String> {
        let designs: Vec<DesignSpec> = designs
            .iter()
            .map(|text| DesignSpec::parse(text).unwrap())
            .collect();
        let settings: Result<Vec<Setting>, DesignError> =
            settings.iter().map(|text| Setting::parse(text)).collect();
        settings
            .and_then(|settings| resolve(&settings, &designs))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_tunable_is_of_some_release() {
        let check = |text: &str| Setting::parse(text).unwrap().check_exists();
        for text in [
            "slub_max_order=3",
            "slub@6.1.cpu_partial=0",
            "sheaf_capacity=4",
            "page.percpu_pagelist_high_fraction=8",
        ] {
            check(text).unwrap();
        }
        for (text, part) in [
            ("slub_max_ordr=3", "the nearest is slub_max_order"),
            ("page.min_free=3", "no release has such a tunable"),
            ("slab.cpu_partial=3", "no release has such a tunable"),
            ("slbu.cpu_partial=3", "there is no such design"),
            ("slub_max_order=99", "it takes "),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_tunable_is_set_once() {
        let repeated = run(&["slub_max_order=1", "slub.slub_max_order=2"], &["slub"]).unwrap_err();
        assert!(
            repeated.contains(r#""slub_max_order=1" and "slub.slub_max_order=2""#),
            "{repeated}"
        );
        let contradictory = run(&["slub_min_order=3", "slub_max_order=1"], &["slub"]).unwrap_err();
        assert!(contradictory.contains("contradict"), "{contradictory}");
        assert!(
            run(
                &["slub@6.1.min_partial=1", "slub@6.18.min_partial=2"],
                &["slub@6.1", "slub@6.18"]
            )
            .is_ok()
        );
    }

    /// Both ends of each range are taken in each era that has the tunable, values beside them are not.
    #[test]
    fn a_range_ends_where_the_table_says() {
        for design in crate::DESIGNS {
            for era in design.eras {
                let spec = DesignSpec { design, era: *era };
                let own = spec.tunables().map(|tunable| ("", tunable));
                for (scope, tunable) in own.chain(SYSCTLS.of(*era).map(|sysctl| ("page.", sysctl)))
                {
                    let set = |value: u64| {
                        let text = format!("{scope}{}={value}", tunable.name);
                        resolve(&[Setting::parse(&text).unwrap()], &[spec])
                    };
                    for value in [tunable.min, tunable.max] {
                        assert!(set(value).is_ok(), "{spec}: {}={value}", tunable.name);
                    }
                    let beside = [tunable.min.checked_sub(1), tunable.max.checked_add(1)];
                    for value in beside.into_iter().flatten() {
                        assert!(set(value).is_err(), "{spec}: {}={value}", tunable.name);
                    }
                }
            }
        }
    }

    #[test]
    fn sysctls_of_the_page_allocator() {
        let set = run(
            &["page.percpu_pagelist_high_fraction=8"],
            &["slub", "slob@6.1"],
        )
        .unwrap();
        assert_eq!((set[0].pages.len(), set[1].pages.len()), (1, 1));
        let refused = run(&["page.absent=8"], &["slub"]).unwrap_err();
        assert!(refused.contains("page.min_free_kbytes"), "{refused}");
    }

    #[test]
    fn a_setting_reaches_those_that_have_it() {
        let all = run(
            &[
                "cpu_partial=0",
                "slub_max_order=1",
                "slubq.cpu_queue_size=9",
            ],
            &["slub", "slubq"],
        )
        .unwrap();
        let names = |settings: &Tuning| -> Vec<&str> {
            settings
                .cache
                .iter()
                .map(|(tunable, _)| tunable.name)
                .collect()
        };
        assert_eq!(names(&all[0]), ["cpu_partial"]);
        assert_eq!(names(&all[1]), ["cpu_queue_size"]);
        assert!(
            all.iter()
                .all(|settings| settings.boot.slub_max_order == Some(1))
        );
    }

    #[test]
    fn a_list_is_a_setting_for_each_value() {
        let parsed = |text: &str| {
            let settings = Setting::parse_list(text).map_err(|error| error.to_string())?;
            Ok::<_, String>(settings.iter().map(Setting::short).collect::<Vec<_>>())
        };
        let all = ["cpu_partial=0", "cpu_partial=6", "cpu_partial=13"];
        assert_eq!(parsed("slub.cpu_partial=0, 6,13").unwrap(), all);
        assert_eq!(parsed("cpu_partial=6").unwrap(), ["cpu_partial=6"]);
        let orders = ["slub_max_order=0", "slub_max_order=1", "slub_max_order=3"];
        assert_eq!(parsed("slub_max_order=0..1,3").unwrap(), orders);
        for wrong in [
            "slub_max_order=3..1",
            "slub_max_order=0..x",
            "slub_max_order=0..5000",
        ] {
            assert!(
                parsed(wrong).unwrap_err().contains("is no range"),
                "{wrong}"
            );
        }
        let pages = "page.min_free_kbytes=8192,16384";
        assert_eq!(parsed(pages).unwrap()[1], "page.min_free_kbytes=16384");
        assert!(
            parsed("cpu_partial=6,")
                .unwrap_err()
                .contains("not a number")
        );
        assert!(
            parsed("cpu_partial=6,06")
                .unwrap_err()
                .contains("listed twice")
        );
    }

    #[test]
    fn an_era_narrows() {
        let all = run(&["slub@6.1.cpu_partial=0"], &["slub@6.1", "slub@6.18"]).unwrap();
        assert_eq!((all[0].cache.len(), all[1].cache.len()), (1, 0));
    }

    #[test]
    fn errors_say_what_is_valid() {
        for (setting, part) in [
            ("cpu_partial", "there is no \"=\""),
            ("cpu_partial=-1", "\"-1\" is not a number"),
            ("slub@9.cpu_partial=1", "there is no era \"9\""),
            (
                "slubq.min_partial=1",
                "does not take part; designs are slub@6.17",
            ),
            ("bogus=1", "slub@6.17 has slub_min_order, slub_max_order"),
            ("cpu_partal=1", "(the nearest is cpu_partial)"),
            ("page.min_free_kb=1", "(the nearest is min_free_kbytes)"),
            ("slub_max_order=11", "it takes 0..=10 (order)"),
        ] {
            let message = run(&[setting], &["slub"]).unwrap_err();
            assert!(message.contains(part), "{setting}: {message}");
        }
    }
}
