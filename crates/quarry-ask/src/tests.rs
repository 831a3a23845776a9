//! A question at every door: the same values, and messages in the door's own words.

use std::path::Path;

use serde_json::{Map, json};

use crate::{
    Axis, Bytes, DesignName, Door, Json, Listed, MachineFile, PageBytes, Part, Rank, Release,
    Settings, canonical, cells, fields, object, of, question, read, stub,
};

question! {
    /// A group.
    struct Clock {
        /// Machine.
        machine: Axis<MachineFile> = "haswell-ep-2x12", rank(Rank::First);
        /// Seed.
        seed: Axis<u64> = "1", rank(Rank::Last);
    }
}

question! {
    /// A question.
    struct Example {
        /// In simulated time.
        time: Axis<bool>, mode(), not_with(&["memory"]);
        /// Machine and seed.
        clock: Clock, needs(&["time"]);
        /// Memory of each machine;
        /// 16G by default.
        ///
        /// Only what is used becomes resident.
        memory: Axis<Bytes> = "16G", value("BYTES");
        /// Releases.
        release: Axis<Release>, value("RELEASE"), inner();
        /// Designs.
        design: Axis<DesignName>, value("DESIGN[@ERA]"), inner();
        /// Page sizes.
        page_size: Axis<PageBytes>, value("BYTES"), inner();
        /// Notes.
        note: Listed<String>;
        /// Tunables.
        set: Settings;
    }
}

fn example(given: &Json) -> Result<Example, String> {
    of(given)
}

#[test]
fn spellings_of_one_value_are_one() {
    let of = |given| canonical("example", &example(&given).unwrap());
    assert_eq!(
        of(json!({"page_size": "64k", "release": null})),
        of(json!({"page-size": [65536]}))
    );
    assert_eq!(
        of(json!({"memory": " 1G "})),
        of(json!({"memory": 1 << 30}))
    );
    assert_ne!(of(json!({"memory": 1})), of(json!({"memory": 2})));
    let set = |set| of(json!({"set": set}));
    assert_eq!(
        set(json!({"cpu_partial": [0, 6]})),
        set(json!("cpu_partial=0,6"))
    );
}

#[test]
fn an_object_is_read_again() {
    let asked = example(&json!({
        "time": true, "seed": "1..3", "design": "slub", "note": ["a", "b"], "set": ["cpu_partial=0,6", "min_partial=1"],
    }))
    .unwrap();
    assert_eq!(asked.clock.seed.all(), [1, 2, 3]);
    assert_eq!(of(&Json::Object(object(&asked, true))), Ok(asked.clone()));
    // Cells, too: they know which of their settings vary.
    let all = cells(&asked, |_| true);
    assert_eq!(all.len(), 3 * 3);
    for cell in &all {
        assert_eq!(of(&Json::Object(object(cell, true))).as_ref(), Ok(cell));
    }
    assert_eq!(
        [&all[0], &all[1]].map(|cell| cell.set.varied()),
        ["default", "cpu_partial=0"]
    );
    assert_eq!(all[1].set.texts(), ["min_partial=1", "cpu_partial=0"]);
    assert_eq!(cells(&asked, |field| field.inner).len(), 3);
    assert_eq!(cells(&Example::default(), |_| true), [Example::default()]);
}

#[test]
fn the_slowest_axis_is_the_first() {
    let asked = example(&json!({"time": true, "page_size": [4096, 65536], "seed": [1, 2]}));
    let cells = cells(&asked.unwrap(), |_| true);
    let shown = cells
        .iter()
        .map(|cell| (cell.page_size.one().unwrap().0, cell.clock.seed.or(0)));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [(4096, 1), (4096, 2), (65536, 1), (65536, 2)]
    );
}

/// A machine's file is read when it enters. Its content is a part of the question, and goes where the question goes.
#[test]
fn a_file_counts_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let machine = quarry_machines::Machine::bundled("milan-2x64").unwrap();
    let text = machine.to_text();
    let path = folder.path().join("mine.toml");
    let given = json!({"time": true, "machine": "mine.toml"});
    let read_it =
        || -> Example { read(&[(given.as_object().unwrap(), folder.path())], Door::Plan).unwrap() };
    std::fs::write(&path, &text).unwrap();
    let before = read_it();
    std::fs::write(&path, text.replacen("ghz = ", "ghz = 1", 1)).unwrap();
    let after = read_it();
    let id = |asked| canonical("example", asked);
    assert_ne!(id(&before), id(&after));
    assert_eq!(object(&before, false), object(&after, false));
    std::fs::write(folder.path().join("same.toml"), &text).unwrap();
    let same = json!({"time": true, "machine": ["mine.toml", "same.toml"]});
    std::fs::write(&path, &text).unwrap();
    let twice = read::<Example>(&[(same.as_object().unwrap(), folder.path())], Door::Plan);
    assert!(twice.unwrap_err().contains("has the content of"));
    // Without its file.
    drop(folder);
    let moved = of(&Json::Object(object(&before, true))).unwrap();
    assert_eq!(id(&before), id(&moved));
    assert_eq!(before, moved);
}

#[test]
fn later_layers_replace_earlier_ones() {
    let object = |given: Json| given.as_object().unwrap().clone();
    let first = object(json!({"design": "slub", "page_size": "4k"}));
    let second = object(json!({"design": ["slab@6.1", "slub@6.1"]}));
    let base = Path::new("");
    let asked: Example = read(&[(&first, base), (&second, base)], Door::Plan).unwrap();
    assert_eq!(
        (asked.design.all().len(), asked.page_size.all().len()),
        (2, 1)
    );
}

#[test]
fn messages_name_the_field_as_the_door_spells_it() {
    let at = |door, given: Json| {
        let given: Map<String, Json> = given.as_object().unwrap().clone();
        read::<Example>(&[(&given, Path::new(""))], door).unwrap_err()
    };
    let wrong = json!({"page_size": "8k"});
    for (door, name) in [
        (Door::Command, "--page-size: "),
        (Door::Plan, "page-size: "),
        (Door::Python, "page_size: "),
    ] {
        let message = at(door, wrong.clone());
        assert!(message.starts_with(name), "{message}");
    }
    for (given, part) in [
        (json!({"pagesize": 1}), "the nearest is \"page_size\""),
        (json!({"seed": 1}), "seed needs time"),
        (
            json!({"time": true, "memory": 1}),
            "time cannot be used with memory",
        ),
        (json!({"page_size": [4096, "4k"]}), "4096 is listed twice"),
        (json!({"release": 6.1}), "6.1 and 6.10 are the same"),
        (json!({"release": [["6.1"]]}), "is no text, number"),
        (json!({"time": "yes"}), "is neither true nor false"),
        (json!({"time": true, "seed": "4..2"}), "must go up"),
        (json!({"time": true, "seed": -1}), "is no number from 0"),
        (json!({"design": "slib"}), "unknown design \"slib\""),
        (json!({"set": "cpu_partial"}), "there is no \"=\""),
        // A list is a list; a rest behind a value is an error.
        (
            json!({"release": "6.12, 7.3"}),
            "write a list, [\"6.12\", \"7.3\"]",
        ),
        (
            json!({"page_size": "4k,64k"}),
            "write a list, [\"4k\", \"64k\"]",
        ),
        (json!({"release": "6.12,new"}), "there is no era"),
        (json!({"release": "7.3 oops"}), "there is no era"),
        (json!({"release": "6.12;7.3"}), "there is no era"),
        (json!({"design": "slub@6.18 x"}), "there is no era"),
        (json!({"memory": "64k junk"}), "is not a size"),
        (json!({"time": true, "seed": "1..8x"}), "is no number"),
        (json!({"time": true, "seed": "1 2"}), "is no number"),
        (json!({"set": "cpu_partial=0,6x"}), "is not a number"),
        (
            json!({"set": "slub@6.1 x.cpu_partial=0"}),
            "there is no era",
        ),
    ] {
        let message = at(Door::Python, given);
        assert!(message.contains(part), "{message}");
    }
    // What is given as false contradicts nothing.
    assert!(example(&json!({"time": false, "memory": 1})).is_ok());
}

#[test]
fn a_doc_comment_is_help_and_a_field_is_a_keyword() {
    let fields = fields::<Example>();
    let memory = fields.iter().find(|field| field.name == "memory").unwrap();
    assert_eq!(
        memory.about(),
        "Memory of each machine; 16G by default.\n\nOnly what is used becomes resident."
    );
    assert_eq!(fields.len(), Example::default().slots().len());
    let stub = stub::<Example>("Example", "A question.");
    let page_size = "    #: Page sizes.\n    page_size: Several[int | str] | None\n";
    assert!(stub.contains(page_size), "{stub}");
}

#[cfg(feature = "clap")]
#[test]
fn options_are_fields() {
    use clap::{Args, FromArgMatches};

    use crate::Asked;
    let command = Asked::<Example>::augment_args(clap::Command::new("example"));
    let asked = |line: &[&str]| {
        let matches = command
            .clone()
            .try_get_matches_from([&["example"], line].concat())?;
        Asked::<Example>::from_arg_matches(&matches)
    };
    // A usual value is shown and not asked.
    assert!(asked(&[]).unwrap().given.is_empty());
    let some = asked(&["--page-size", "4k,64k", "--time", "--seed", "2"]).unwrap();
    let question = some.question().unwrap();
    assert_eq!(question.page_size.all().len(), 2);
    assert_eq!(
        (question.time.is_true(), question.clock.seed.or(1)),
        (true, 2)
    );
    for (line, part) in [
        (&["--seed", "2"][..], "required arguments"),
        (&["--time", "--memory", "1"], "cannot be used with"),
        (&["--page-size", "8k"], "valid page sizes"),
    ] {
        let message = asked(line).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
