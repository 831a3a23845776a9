//! Errors of sockets, which need no privileges; packets are received by the root test of `examples/af_xdp`.

use super::*;
use crate::{Builder, Slub};

fn error(pool: &PoolParams<'_>, params: &XdpParams) -> String {
    let heap = Builder::<Slub>::new().memory_bytes(1 << 20);
    let heap = heap.build().expect("a heap").leak();
    let socket = XdpSocket::open(heap.pages(), heap.era(), pool, params);
    socket
        .map(drop)
        .expect_err("there is no interface 0")
        .to_string()
}

#[test]
fn errors_name_the_call_and_the_next_step() {
    let text = error(&PoolParams::default(), &XdpParams::default());
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
        error(&higher, &XdpParams::default()),
        "frames of order 1: a UMEM has frames of one page"
    );
}
