//! A document that is parsed and dropped again and again, with kmalloc as the allocator of the whole program.
//!
//! ```text
//! cargo run --release -p kquarry --example json_documents
//! ```
//!
//! A program of yours has `static ALLOCATOR: quarry::Kmalloc = quarry::Kmalloc;` and nothing else. [`Chosen`] is for the
//! comparison: the program starts itself with either allocator.

mod measured;

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::ffi::CStr;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use quarry::Kmalloc;
use serde_json::{Value, json};

use measured::{compare, timed};

#[global_allocator]
static ALLOCATOR: Chosen = Chosen(OnceLock::new());

/// The environment variable that makes a process a child: the name of the child's allocator.
const VARIABLE: &CStr = c"QUARRY_EXAMPLE_ALLOCATOR";
const PARSES: usize = 30;

/// Kmalloc, or the system's allocator where the environment names that.
struct Chosen(OnceLock<bool>);

impl Chosen {
    fn is_system(&self) -> bool {
        // At the first allocation; nothing here allocates.
        *self.0.get_or_init(|| {
            // SAFETY: the name is a C string, and no thread changes the environment.
            let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
            // SAFETY: a value is a C string, which has a first byte.
            !value.is_null() && unsafe { *value }.cast_unsigned() == b's'
        })
    }
}

// SAFETY: all calls of a process go to one allocator.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.is_system() {
            // SAFETY: the caller's contract is the same.
            true => unsafe { System.alloc(layout) },
            // SAFETY: as above.
            false => unsafe { Kmalloc.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.is_system() {
            // SAFETY: the caller's contract is the same.
            true => unsafe { System.dealloc(block, layout) },
            // SAFETY: as above.
            false => unsafe { Kmalloc.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match self.is_system() {
            // SAFETY: as above.
            true => unsafe { System.realloc(block, layout, bytes) },
            // SAFETY: as above.
            false => unsafe { Kmalloc.realloc(block, layout, bytes) },
        }
    }
}

/// The text of some thousand orders.
fn document() -> String {
    let order = |number: usize| {
        let lines: Vec<Value> = (0..number % 5 + 1)
            .map(|line| json!({ "article": format!("A-{}", number * 7 + line), "count": line + 1 }))
            .collect();
        json!({ "number": number, "customer": format!("customer {}", number % 97), "lines": lines })
    };
    Value::Array((0..2000).map(order).collect()).to_string()
}

/// Parses and drops the document; prints the nanoseconds that it took.
fn child() -> Result<(), Box<dyn Error>> {
    let text = document();
    let time = timed(|| {
        for _ in 0..PARSES {
            let orders: Vec<Value> = serde_json::from_str(&text)?;
            if orders.len() != 2000 {
                return Err("orders were lost".into());
            }
        }
        Ok(())
    })?;
    println!("{}", time.as_nanos());
    Ok(())
}

fn run(allocator: &str) -> Result<Duration, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.env(VARIABLE.to_str()?, allocator).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(Duration::from_nanos(text.trim().parse()?))
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(VARIABLE.to_str()?).is_some() {
        return child();
    }
    println!(
        "{} bytes of JSON, parsed and dropped {PARSES} times",
        document().len()
    );
    compare(|| run("quarry"), || run("system"))
}
