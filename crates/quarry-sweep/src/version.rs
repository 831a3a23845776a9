//! The version that results are of.

/// Version of Quarry, `0.1.0`; of a build from the repository with a hash of its sources, `0.1.0+6f2c01d2`: results of two
/// states of the sources are never taken for each other.
#[must_use]
pub fn version() -> &'static str {
    env!("QUARRY_VERSION")
}
