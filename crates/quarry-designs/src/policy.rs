//! Rules of the page allocator beyond a release's, as users name them.

use std::fmt;

use quarry_core::page::policy::{POLICIES, Policy};
use quarry_core::page::{MAX_ORDER, PageConfig};

use crate::{DesignError, list, nearest};

/// The name of the release's own rules.
const RELEASE: &str = "release";

/// The rules by which the page allocator chooses blocks, and its pageblocks: `release`, `steer`,
/// `release+block=7+no_highatomic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePolicy {
    /// Policy in place of the release's rules for types.
    policy: Option<Policy>,
    /// log2 of the pages of a pageblock.
    block_order: Option<u32>,
    /// No pageblocks are reserved for requests that cannot wait.
    no_high_atomic: bool,
}

impl PagePolicy {
    /// All names that a policy may have, with what they say.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        let release = (RELEASE, "the rules of the release");
        let others = POLICIES.iter().map(|policy| {
            let rules = policy.rules();
            (rules.name(), rules.about())
        });
        std::iter::once(release).chain(others)
    }

    /// Reads a name with what follows it: `+block=N` for pageblocks of 2^N pages, `+no_highatomic` for no reserves.
    ///
    /// # Errors
    ///
    /// [`DesignError`] with what there is.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let mut parts = text.split('+');
        let name = parts.next().unwrap_or_default();
        let mut parsed = Self {
            policy: Policy::named(name),
            ..Self::default()
        };
        if parsed.policy.is_none() && name != RELEASE {
            let names = || Self::names().map(|(name, _)| name);
            let near = nearest(name, names()).unwrap_or(RELEASE);
            return Err(DesignError(format!(
                "there is no policy {name:?}; there are {}, and the nearest is {near}",
                list(names())
            )));
        }
        for part in parts {
            match part.split_once('=') {
                None if part == "no_highatomic" => parsed.no_high_atomic = true,
                Some(("block", order)) => {
                    let known = order.parse().ok().filter(|order| *order <= MAX_ORDER);
                    parsed.block_order = Some(known.ok_or_else(|| {
                        DesignError(format!(
                            "policy {text:?}: block={order} must be the order of a pageblock, 0 to {MAX_ORDER}"
                        ))
                    })?);
                }
                _ => {
                    return Err(DesignError(format!(
                        "policy {text:?}: +{part} is nothing that a policy has; there are +block=N and +no_highatomic"
                    )));
                }
            }
        }
        Ok(parsed)
    }

    /// The configuration of a page allocator with these rules, whose contents are accounted.
    #[must_use]
    pub fn config(self, plain: PageConfig) -> PageConfig {
        PageConfig {
            policy: self.policy,
            block_order: self.block_order,
            high_atomic: !self.no_high_atomic,
            tracks_contents: true,
            ..plain
        }
    }
}

impl fmt::Display for PagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.policy.map_or(RELEASE, |policy| policy.rules().name());
        f.write_str(name)?;
        if let Some(order) = self.block_order {
            write!(f, "+block={order}")?;
        }
        if self.no_high_atomic {
            f.write_str("+no_highatomic")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "release",
            "steer",
            "defrag+block=10",
            "release+block=7+no_highatomic",
        ] {
            assert_eq!(PagePolicy::parse(text).unwrap().to_string(), text);
        }
        for (text, part) in [
            ("stear", "the nearest is steer"),
            ("", "there is no policy \"\""),
            ("release+block=11", "0 to 10"),
            ("release+block", "there are +block=N"),
        ] {
            let error = PagePolicy::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
