//! Turns of bodies that do nothing but take time, wait and wake.

use super::*;

#[test]
fn visible_actions_happen_in_the_order_of_time() {
    let order = Order::new(3);
    let seen = RefCell::new(Vec::new());
    let ran = order.run(|cpu| {
        for _ in 0..4 {
            order.advance(u64::from(cpu) * 3 + 2);
            order.visible();
            seen.borrow_mut().push((order.now_ps(), cpu));
        }
    });
    assert_eq!(ran, Ok(()));
    let seen = seen.into_inner();
    assert_eq!(seen.len(), 12);
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen[..4], [(2, 0), (4, 0), (5, 1), (6, 0)]);
}

#[test]
fn a_woken_cpu_goes_first_if_its_clock_is_smaller() {
    let order = Order::new(2);
    let seen = RefCell::new(Vec::new());
    let ran = order.run(|cpu| {
        if cpu == 0 {
            order.block("a parcel");
            seen.borrow_mut().push((0, order.now_ps()));
        } else {
            order.advance(10);
            order.wake(0, 15);
            order.advance(10);
            order.visible();
            seen.borrow_mut().push((1, order.now_ps()));
        }
    });
    assert_eq!(ran, Ok(()));
    assert_eq!(seen.into_inner(), [(0, 15), (1, 20)]);
}

#[test]
fn a_deadlock_names_the_cpus_and_what_they_wait_for() {
    let order = Order::new(3);
    let ran = order.run(|cpu| {
        if cpu != 1 {
            order.block(["left", "", "right"][cpu as usize]);
        }
    });
    let error = ran.expect_err("a deadlock");
    assert_eq!(
        error.to_string(),
        "deadlock: CPU 0 waits for left, CPU 2 waits for right"
    );
    // The order can be used again.
    assert_eq!(order.run(|_| order.visible()), Ok(()));
}

#[test]
fn a_panic_reaches_the_caller_and_ends_the_others() {
    struct Dropped<'a>(&'a Order, &'a Cell<u32>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            // As the release of a lock does.
            self.0.visible();
            self.1.set(self.1.get() + 1);
        }
    }
    let (order, dropped) = (Order::new(3), Cell::new(0));
    let run = || {
        order.run(|cpu| {
            let _dropped = Dropped(&order, &dropped);
            order.advance(u64::from(cpu));
            order.visible();
            assert_ne!(cpu, 1, "on purpose");
            order.block("the end");
        })
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    assert!(caught.is_err());
    assert_eq!(dropped.get(), 3);
    assert_eq!(order.run(|_| order.visible()), Ok(()));
}
