//! Where the page allocator puts pages of two types, compared with kernels that were recorded while they mixed them.

mod guest;
mod replay;
mod start;

use guest::Guest;

fn show(guest: &Guest) {
    for s in replay::stages(guest, guest.era, 0.0) {
        println!("{:16} {:6} {:9} fallbacks {:5} {:5} drained {:6} {:6} tainted {:4} {:4} lost {}", guest.name, guest.era, s.name,
        s.kernel.fallbacks, s.model.fallbacks, s.kernel.drained, s.model.drained, s.kernel.tainted, s.model.tainted, s.lost);
    }
}

#[test]
fn bundled() {
    for name in ["6.1.176-2", "7.0.13-2"] {
        show(&Guest::bundled(name));
    }
}

#[test]
fn folders() {
    for name in std::env::var("MIXING").unwrap().split(',') {
        show(&Guest::folder(std::path::Path::new(name)));
    }
}
