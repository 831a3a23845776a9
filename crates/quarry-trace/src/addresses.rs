//! Facts that the addresses of objects show: whether they are hashes, and the architecture.
//!
//! The kernel prints `%p` as a hash of 32 bits. An address from 2^32 on is no hash. Below, the
//! addresses may be hashes, or real ones of a machine with 32 bits or with little memory at low addresses
//! (s390x). Every allocator aligns objects to four bytes at least, a hash is a random number: three
//! of four are not aligned.

/// Addresses from here on cannot be hashes, which have 32 bits.
pub(crate) const HASH_LIMIT: u64 = 1 << 32;
/// Error pointers, which `%p` prints as they are, begin here.
const ERRORS: u64 = u64::MAX - 4095;
/// Bytes to which every allocator aligns.
const ALIGN: u64 = 4;
/// That many distinct low addresses, all aligned, are no hashes: by chance they are once in 2^32.
const ALIGNED_MIN: usize = 16;

/// Direct maps by the kernel's own documents (`Documentation/arch/*/mm.rst`,
/// `memory.rst`, `vm-layout.rst`); first and last address, and the architecture.
const DIRECT_MAPS: [(u64, u64, &str); 5] = [
    (0xffff_8880_0000_0000, 0xffff_c87f_ffff_ffff, "x86_64"),
    (0xff11_0000_0000_0000, 0xff90_ffff_ffff_ffff, "x86_64"),
    (0xffff_0000_0000_0000, 0xffff_7fff_ffff_ffff, "aarch64"),
    (0xc000_0000_0000_0000, 0xc00f_ffff_ffff_ffff, "ppc64"),
    (0x9000_0000_0000_0000, 0x9000_ffff_ffff_ffff, "loongarch64"),
];

/// Statistics of the addresses so far.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The smallest and the largest that cannot be hashes.
    wide: Option<(u64, u64)>,
    /// One is not aligned.
    odd: bool,
    /// Distinct low ones, as many as are needed.
    low: Vec<u64>,
}

impl Addresses {
    /// Takes the address of an object.
    pub(crate) fn note(&mut self, address: u64) {
        if address >= ERRORS {
            return;
        }
        if address >= HASH_LIMIT {
            let (low, high) = self.wide.unwrap_or((address, address));
            self.wide = Some((low.min(address), high.max(address)));
        } else if self.wide.is_none() && !self.odd {
            self.odd = !address.is_multiple_of(ALIGN);
            if self.low.len() < ALIGNED_MIN && !self.low.contains(&address) {
                self.low.push(address);
            }
        }
    }

    /// True if nearby addresses prove nothing: they are hashes, or too few to decide.
    pub(crate) fn are_hashed(&self) -> bool {
        self.wide.is_none() && (self.odd || self.low.len() < ALIGNED_MIN)
    }

    /// The architecture whose direct map all objects lie in, if one has.
    pub(crate) fn arch(&self) -> Option<&'static str> {
        let (low, high) = self.wide?;
        let holds = |map: &&(u64, u64, &str)| map.0 <= low && high <= map.1;
        DIRECT_MAPS.iter().find(holds).map(|map| map.2)
    }
}

/// Bytes of a page, if the architecture has one size.
pub(crate) fn page_bytes_of(arch: &str) -> Option<u32> {
    const FIXED: [&str; 10] = [
        "x86_64", "amd64", "i386", "i486", "i586", "i686", "x86", "s390x", "riscv64", "armv7l",
    ];
    FIXED.contains(&arch).then_some(4096)
}

/// True if kernels of the architecture are built with several page sizes, so that none can be assumed.
pub(crate) fn has_several_page_sizes(arch: &str) -> bool {
    const SEVERAL: [&str; 9] = [
        "aarch64",
        "arm64",
        "ppc64",
        "ppc64le",
        "powerpc64",
        "loongarch64",
        "mips64",
        "ia64",
        "sh4",
    ];
    SEVERAL.contains(&arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addresses: impl IntoIterator<Item = u64>) -> Addresses {
        let mut found = Addresses::default();
        addresses
            .into_iter()
            .for_each(|address| found.note(address));
        found
    }

    #[test]
    fn hashes_are_told_from_low_addresses() {
        // A multiplication that mixes stands for the hash.
        let hashes = (1..40_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        assert!(of(hashes.clone()).are_hashed());
        assert!(!of(hashes.chain([1 << 40])).are_hashed());
        // A machine with 32 bits, and one of s390x.
        assert!(!of((0..20).map(|n| 0xc100_0000 + 32 * n)).are_hashed());
        assert!(!of((0..20).map(|n| 0x0200_0000 + 4 * n)).are_hashed());
        // Too few, however often they come.
        assert!(of((0..100).map(|n| 0xc100_0000 + 32 * (n % 4))).are_hashed());
        // An error pointer is printed as it is.
        assert!(of([0x1235, u64::MAX - 11]).are_hashed());
    }

    #[test]
    fn the_direct_map_tells_the_architecture() {
        assert_eq!(of([0xffff_8881_0000_0000]).arch(), Some("x86_64"));
        assert_eq!(of([0xffff_0001_0000_0000]).arch(), Some("aarch64"));
        assert_eq!(of([0xc000_0001_0000_0000]).arch(), Some("ppc64"));
        assert_eq!(
            of([0xffff_0001_0000_0000, 0xffff_8881_0000_0000]).arch(),
            None
        );
        assert_eq!(of([0x1234]).arch(), None);
    }
}
