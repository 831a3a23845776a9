//! A computer for tests.

use quarry_machines::{Cache, Caches};

use crate::sysfs::{Computer, Core};

/// A cache of 8 ways.
pub(crate) fn cache(bytes: u64) -> Cache {
    Cache {
        bytes,
        ways: 8,
        inclusive: false,
        hashed: false,
    }
}

/// Two cores that share a last cache.
pub(crate) fn computer() -> Computer {
    let core = |cpu| Core {
        cpu,
        socket: 0,
        cluster: 0,
    };
    Computer {
        cores: (0..2).map(core).collect(),
        sockets: 1,
        clusters: 1,
        cpus: 2,
        nodes: 1,
        line_bytes: 64,
        caches: Caches {
            l1: cache(32 << 10),
            l2: Some(cache(1 << 20)),
            llc: Some(cache(32 << 20)),
        },
        notes: vec!["a note".to_string()],
    }
}
