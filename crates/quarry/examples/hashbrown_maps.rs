//! Maps whose tables a heap allocates (feature `allocator-api2`): what one tenant of a server stores is in a heap of its own,
//! with a limit, and can be counted.
//!
//! ```text
//! cargo run --release -p kquarry --features allocator-api2 --example hashbrown_maps
//! ```

mod measured;

use std::error::Error;

use allocator_api2::alloc::{Allocator, Global};
use hashbrown::{DefaultHashBuilder, HashMap};
use quarry::{Builder, HostHeap, Magazine};

use measured::{compare, timed};

const SESSIONS: u64 = 20_000;
/// Entries of the largest session; most have a few.
const ENTRIES: u64 = 64;

type Session<A> = HashMap<u64, [u64; 3], DefaultHashBuilder, A>;

/// Makes a map of maps, and drops its sessions in another order.
fn fill<A: Allocator + Copy>(memory: A) -> Result<(), Box<dyn Error>> {
    let mut sessions: HashMap<u64, Session<A>, DefaultHashBuilder, A> = HashMap::new_in(memory);
    for number in 0..SESSIONS {
        let mut session = Session::new_in(memory);
        let most = ENTRIES >> (number % 6);
        // An error instead of an abort where the heap's limit is reached.
        session
            .try_reserve(1)
            .map_err(|_| "the tenant's memory is used up")?;
        session.extend((0..most).map(|key| (key, [key, number, 0])));
        sessions.insert(number, session);
    }
    let found = sessions.values().filter(|session| session.contains_key(&3));
    let found = found.count() as u64;
    // Sessions of one or two entries have no key 3.
    let small = (0..SESSIONS)
        .filter(|number| ENTRIES >> (number % 6) <= 3)
        .count() as u64;
    if found + small != SESSIONS {
        return Err("entries were lost".into());
    }
    for number in 0..SESSIONS {
        sessions.remove(&(number * 7919 % SESSIONS));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let heap: HostHeap = Builder::<Magazine>::new().memory_bytes(256 << 20).build()?;
    println!("{SESSIONS} maps of 2 to {ENTRIES} entries in a map, made and dropped");
    compare(|| timed(|| fill(&heap)), || timed(|| fill(Global)))
}
