//! The AF_XDP example at work: pages of a pool are the frames that a kernel fills.

#[path = "../../examples/af_xdp/main.rs"]
#[expect(dead_code, reason = "the example's own main")]
mod example;

use example::xdp::{XdpParams, XdpSocket};
use example::{Consumer, Failure, Options, run};
use quarry::{Builder, PoolParams, Slub};

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

/// Errors need no privileges.
#[test]
fn errors_name_the_call_and_the_next_step() {
    let error = |pool: &PoolParams<'_>| {
        let heap = Builder::<Slub>::new().memory_bytes(1 << 20);
        let heap = heap.build().expect("a heap").leak();
        let socket = XdpSocket::open(heap.pages(), heap.era(), pool, &XdpParams::default());
        socket
            .map(drop)
            .expect_err("there is no interface 0")
            .to_string()
    };
    let text = error(&PoolParams::default());
    let known = [
        "socket(AF_XDP): Operation not permitted (os error 1); run it as root, or with CAP_NET_RAW",
        "socket(AF_XDP): Address family not supported by protocol (os error 97); this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        "bind: No such device (os error 19); there is no such interface",
    ];
    assert!(known.contains(&&*text), "{text}");
    let higher = PoolParams {
        order: 1,
        ..PoolParams::default()
    };
    assert_eq!(
        error(&higher),
        "frames of order 1: a UMEM has frames of one page"
    );
}
