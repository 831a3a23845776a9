//! Pages by migrate type, and their division in given proportions.

use quarry_core::page::{MIGRATE_TYPES, MigrateType};

/// Blocks or pages by migrate type.
pub(super) type ByType = [u64; MIGRATE_TYPES];

/// The type that is furthest behind its share; movable, as most memory is, if none has one.
pub(super) fn next_type(weights: &ByType, given: &mut ByType) -> MigrateType {
    let all: u64 = weights.iter().sum();
    let number = given.iter().sum::<u64>() + 1;
    let behind = |migratetype: &MigrateType| {
        let at = *migratetype as usize;
        i128::from(weights[at]) * i128::from(number) - i128::from(given[at]) * i128::from(all)
    };
    let mut next = MigrateType::Movable;
    for migratetype in MigrateType::ALL {
        if behind(&migratetype) > behind(&next) {
            next = migratetype;
        }
    }
    given[next as usize] += 1;
    next
}

/// Divides `pages` among the types, in the proportions of `weights`.
pub(super) fn shares(pages: u32, weights: &ByType) -> [u32; MIGRATE_TYPES] {
    let mut given = ByType::default();
    for _ in 0..pages {
        next_type(weights, &mut given);
    }
    given.map(|pages| pages as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_handed_out_evenly() {
        let mut given = ByType::default();
        let types: Vec<_> = (0..8).map(|_| next_type(&[1, 3, 0], &mut given)).collect();
        use MigrateType::{Movable, Unmovable};
        assert_eq!(given, [2, 6, 0]);
        assert_eq!(types[..4], [Movable, Movable, Unmovable, Movable]);
        assert_eq!(shares(10, &[0, 0, 0]), [0, 10, 0]);
        assert_eq!(shares(7, &[2, 2, 3]), [2, 2, 3]);
        assert_eq!(shares(0, &[1, 1, 1]), [0; MIGRATE_TYPES]);
    }
}
