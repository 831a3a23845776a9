//! A machine as the text of its file.

use std::fmt::Write;

use serde_json::Value;

use crate::cost::Cost;
use crate::file::LOCKS;
use crate::key::Key;
use crate::machine::{Cache, Caches, Machine, Topology};

impl Machine {
    /// The text of its file, which [`Machine::parse`] reads as the same machine.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "about = {}", quoted(&self.about))?;
        writeln!(text, "ghz = {:?}", self.ghz)?;
        let locks = LOCKS
            .iter()
            .find(|(_, kind)| Some(*kind) == self.spin_locks);
        if let Some((name, _)) = locks {
            writeln!(text, "spin_locks = {}", quoted(name))?;
        }
        let Topology {
            sockets,
            clusters,
            cpus,
            nodes,
            line_bytes,
            source,
        } = &self.topology;
        writeln!(
            text,
            "\n[topology]\nsockets = {sockets}\nclusters = {clusters}\ncpus = {cpus}\nnodes = {nodes}\n\
             line_bytes = {line_bytes}\nsource = {}",
            quoted(source)
        )?;
        writeln!(text, "\n[cache]")?;
        let Caches { l1, l2, llc } = self.caches;
        for (name, cache) in [("l1", Some(l1)), ("l2", l2), ("llc", llc)] {
            if let Some(cache) = cache {
                writeln!(text, "{name} = {}", of_cache(name, cache))?;
            }
        }
        let mut last = "";
        for (key, section, name) in Key::ALL {
            let Some(cost) = self.cost(key) else { continue };
            if section != last {
                writeln!(text, "\n[{section}]")?;
                last = section;
            }
            writeln!(text, "{name} = {}", of_cost(cost))?;
        }
        Ok(())
    }
}

fn of_cache(name: &str, cache: Cache) -> String {
    let Cache {
        bytes,
        ways,
        inclusive,
        hashed,
    } = cache;
    match name {
        "llc" => format!(
            "{{ bytes = {bytes}, ways = {ways}, inclusive = {inclusive}, hashed = {hashed} }}"
        ),
        _ => format!("{{ bytes = {bytes}, ways = {ways} }}"),
    }
}

fn of_cost(cost: &Cost) -> String {
    let Cost {
        value,
        low,
        high,
        unit,
        source,
        unverified,
    } = cost;
    let unverified = if *unverified {
        ", unverified = true"
    } else {
        ""
    };
    let (unit, source) = (unit.name(), quoted(source));
    format!("{{ {unit} = {value}, low = {low}, high = {high}{unverified}, source = {source} }}")
}

/// A text in quotes. What JSON escapes, and how, is the same in TOML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use crate::bundled::BUNDLED;

    use super::*;

    #[test]
    fn every_bundled_machine_is_read_again_as_it_is() {
        for (name, _) in BUNDLED {
            let machine = Machine::bundled(name).unwrap();
            let read = Machine::parse(name, &machine.to_text());
            assert_eq!(read.unwrap(), machine, "{name}");
        }
    }

    #[test]
    fn any_text_may_be_a_source() {
        let mut machine = Machine::bundled("milan-2x64").unwrap();
        machine.about = "a \"b\" \\ \u{1} \n é".to_string();
        machine.topology.source = "]\nx = 1".to_string();
        let read = Machine::parse("milan-2x64", &machine.to_text()).unwrap();
        assert_eq!(read, machine);
    }
}
