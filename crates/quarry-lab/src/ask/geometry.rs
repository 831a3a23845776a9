//! Slabs of caches that a user describes.

use quarry_ask::{Axis, DesignName, Listed, PageBytes, Settings, Size, cells, question};
use quarry_core::era::Era;
use quarry_core::geometry::{CacheFlags, CacheParams, MachineParams};
use quarry_designs::DesignSpec;

use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use crate::error::LabError;
use crate::geometry::{CacheGeometry, Query, settings_of};

question! {
    /// Slab size, order, objects per slab and limits of a cache, without running anything.
    pub struct Geometry {
        /// Designs, each with an era.
        design: Axis<DesignName> = "slub", value("DESIGN[@ERA]"), inner();
        /// Page sizes: 4k, 16k, 64k.
        page_size: Axis<PageBytes> = "4k", value("BYTES"), inner();
        /// CPUs of the machine.
        cpus: Axis<u32> = "1", value("N"), inner();
        /// Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
        cache_line: Axis<Size> = "64", value("BYTES"), inner();
        /// Bytes of an object.
        object_size: Axis<Size>, value("BYTES"), inner(), size();
        /// Alignment of an object in bytes, a power of two; 0 for the default.
        align: Axis<Size> = "0", value("BYTES"), inner();
        /// Properties of the cache: hwcache, rcu, ctor, reclaim, freeptr, separated by commas.
        flags: Listed<String>, value("LIST");
        /// Set a tunable; may be repeated. `quarry tunables` lists them. A list has a row for each value.
        set: Settings, value("NAME=VALUE[,...]");
    }
}

impl Geometry {
    /// The geometries: tunables vary first, then alignments, sizes of objects and so on up to designs.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a property or a tunable does not exist, or there is no such cache.
    pub fn rows(&self) -> Result<Vec<CacheGeometry>, LabError> {
        if self.object_size.is_empty() {
            return Err(LabError::Usage(
                "object_size: give bytes of an object".to_string(),
            ));
        }
        cells(self, |field| field.inner)
            .iter()
            .map(Self::row)
            .collect()
    }

    /// The releases whose rules are asked.
    ///
    /// # Errors
    ///
    /// As [`Self::rows`].
    pub fn eras(&self) -> Result<Vec<Era>, LabError> {
        let cells = cells(self, |field| field.inner);
        cells
            .iter()
            .map(|cell| Ok(cell.query()?.design.era))
            .collect()
    }

    /// The geometry of a cell.
    fn row(&self) -> Result<CacheGeometry, LabError> {
        let query = self.query()?;
        Ok(CacheGeometry {
            set: self.set.varied_short(),
            ..CacheGeometry::of(&query, &query.answer()?)
        })
    }

    /// The question of one value of each field.
    ///
    /// # Errors
    ///
    /// As [`Self::rows`].
    pub fn query(&self) -> Result<Query, LabError> {
        let design = match self.design.one() {
            Some(design) => design.in_era(None)?,
            None => DesignSpec::parse("slub")?,
        };
        let page_bytes = self.page_size.or(PageBytes(4096)).0;
        let set = self.set.parsed().map_err(LabError::Usage)?;
        if let Some(value) = set.debug.first() {
            return Err(LabError::Usage(format!(
                "set slub_debug={value}: a geometry is that of a cache without debugging"
            )));
        }
        let flags = CacheFlags::parse_list(&self.flags.0.join(","));
        Ok(Query {
            design,
            machine: MachineParams {
                page_shift: page_bytes.ilog2(),
                nr_cpus: self.cpus.or(1),
                cache_line: self.cache_line.or(Size(64)).0,
            },
            cache: CacheParams {
                object_size: self.object_size.or(Size(0)).0,
                align: self.align.or(Size(0)).0,
                flags: flags.map_err(|error| LabError::Usage(format!("flags: {error}")))?,
                sheaf_capacity: 0,
            },
            settings: settings_of(design, &set.single)?,
        })
    }
}

impl Answers for Geometry {
    fn cost(&self, _: InputSize) -> Cost {
        Cost {
            reading_ms: 0,
            ms: 1,
            bytes: 1 << 20,
        }
    }

    fn answer(&self, _: &Ready<'_>, _: &How<'_>) -> Result<Vec<Answer>, LabError> {
        Answer::all(&self.rows()?)
    }
}

#[cfg(test)]
mod tests {
    use quarry_ask::of;
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_a_row_for_each_combination() {
        let asked = json!({"page_size": ["4k", "64k"], "object_size": [192, 9856]});
        let rows = of::<Geometry>(&asked).unwrap().rows().unwrap();
        let all = rows.iter().map(|row| (row.page_size, row.object_size));
        assert_eq!(
            all.collect::<Vec<_>>(),
            [(4096, 192), (4096, 9856), (65536, 192), (65536, 9856)]
        );
        assert_eq!(rows[0].design, "slub@6.17");
        let asked = json!({"object_size": 256, "set": "slub_max_order=0,1"});
        let rows = of::<Geometry>(&asked).unwrap().rows().unwrap();
        let set: Vec<&str> = rows.iter().map(|row| row.set.as_str()).collect();
        assert_eq!(set, ["default", "slub_max_order=0", "slub_max_order=1"]);
        for none in [json!({"object_size": 0}), json!({})] {
            let none = of::<Geometry>(&none).unwrap();
            assert!(matches!(none.rows(), Err(LabError::Usage(_))));
        }
    }
}
