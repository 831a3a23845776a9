//! The AF_XDP example at work: pages of a pool are the frames that a kernel fills.

#[path = "../../examples/af_xdp/main.rs"]
#[expect(dead_code, reason = "the example's own main")]
mod example;

use example::{Consumer, Failure, Options, run};

fn receives(consumer: Consumer) {
    let options = Options {
        packets: 5_000,
        consumer,
    };
    match run(&options) {
        Ok(()) => {}
        Err(Failure::Skipped(what) | Failure::Wrong(what)) => panic!("{what}"),
    }
}

/// One test, because a thread that fails would leave its network namespace to the next.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn packets_arrive_in_pages_of_the_pool() {
    receives(Consumer::Other);
    receives(Consumer::Same);
}
