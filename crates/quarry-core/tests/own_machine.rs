//! The example of a machine of one's own, run.

#[path = "../examples/own_machine.rs"]
mod own_machine;

#[test]
fn it_allocates() {
    own_machine::main().unwrap();
}
