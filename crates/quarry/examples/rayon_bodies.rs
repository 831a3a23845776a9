//! A parallel job over objects of a cache: made by one pass, changed and sorted by others, and freed by whichever thread has
//! the last part.
//!
//! ```text
//! cargo run --release -p kquarry --example rayon_bodies
//! ```

mod measured;

use std::error::Error;
use std::ops::DerefMut;

use quarry::{Cache, HostHeap, Owned};
use rayon::prelude::*;

use measured::{compare, timed};

struct Body {
    number: u64,
    position: [f64; 3],
    velocity: [f64; 3],
}

const BODIES: u64 = 100_000;
const STEPS: usize = 3;

impl Body {
    fn new(number: u64) -> Self {
        let at = |factor: u64| (number.wrapping_mul(factor) % 1000) as f64;
        Self {
            number,
            position: [at(7919), at(104_729), at(1_299_709)],
            velocity: [at(31), at(37), at(41)],
        }
    }

    fn go(&mut self) {
        for (place, speed) in self.position.iter_mut().zip(self.velocity) {
            *place += speed * 0.01;
        }
    }
}

/// The job, with the memory that `make` takes for each body.
fn job<B: DerefMut<Target = Body> + Send + Sync>(
    make: impl Fn(Body) -> Option<B> + Sync,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..STEPS {
        let bodies: Option<Vec<B>> = (0..BODIES)
            .into_par_iter()
            .map(|number| make(Body::new(number)))
            .collect();
        let mut bodies = bodies.ok_or("out of memory")?;
        bodies.par_iter_mut().for_each(|body| body.go());
        bodies.par_sort_unstable_by(|a, b| a.position[0].total_cmp(&b.position[0]));
        let sum: u64 = bodies.par_iter().map(|body| body.number).sum();
        if sum != BODIES * (BODIES - 1) / 2 {
            return Err("bodies were lost".into());
        }
        // In the order of places now, each part by another thread.
        bodies.into_par_iter().for_each(drop);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let heap = HostHeap::new()?;
    let cache = Cache::new(&heap, "body")?;
    println!(
        "{BODIES} bodies of {} bytes, {STEPS} times, on {} threads",
        size_of::<Body>(),
        rayon::current_num_threads()
    );
    let from_cache = |body| -> Option<Owned<Body>> { cache.alloc(body).ok() };
    compare(
        || timed(|| job(from_cache)),
        || timed(|| job(|body| Some(Box::new(body)))),
    )?;
    Ok(cache.destroy()?)
}
