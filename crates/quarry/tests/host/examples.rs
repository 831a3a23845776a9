//! Runs the examples.

#[path = "../../examples/buffer_pool.rs"]
mod buffer_pool;
#[path = "../../examples/connection_table.rs"]
mod connection_table;
#[path = "../../examples/pipeline.rs"]
mod pipeline;
#[path = "../../examples/uring_echo.rs"]
mod uring_echo;
#[path = "../../examples/uring_proxy.rs"]
mod uring_proxy;

/// A server runs, unless the machine has no io_uring and the error says so.
fn served(outcome: Result<(), Box<dyn std::error::Error>>) {
    if let Err(error) = outcome {
        assert!(error.to_string().starts_with("io_uring_"), "{error}");
    }
}

#[test]
fn messages_are_echoed_from_provided_buffers() {
    served(uring_echo::main());
}

#[test]
fn bytes_are_forwarded_in_provided_buffers() {
    served(uring_proxy::main());
}

#[test]
fn buffers_are_pooled() {
    buffer_pool::main().expect("the example runs");
}

#[test]
fn connections_are_kept_in_a_table() {
    connection_table::main().expect("the example runs");
}

#[test]
fn messages_pass_a_pipeline() {
    pipeline::main().expect("the example runs");
}

/// The text that a `main` prints that returns an error.
#[test]
fn errors_print_their_message() {
    let error = quarry::Builder::<quarry::Slub>::new()
        .page_size(100)
        .build();
    let error = error.expect_err("no page has 100 bytes");
    assert_eq!(
        format!("{error:?}"),
        "page_size is 100: choose 4096, 16384 or 65536"
    );
    let boxed: Box<dyn std::error::Error> = error.into();
    assert_eq!(
        format!("{boxed:?}"),
        "page_size is 100: choose 4096, 16384 or 65536"
    );
}
