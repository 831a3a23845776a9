//! Traces of Perfetto to write: tracks of slices and counters, which ui.perfetto.dev shows. Numbers and types of fields are
//! those of Perfetto's public definitions (`perfetto_trace.proto`, Apache-2.0, as the Python package `perfetto` 0.59.1
//! has them).

use prost::Message;

/// Sequence of all packets: they are ours.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    sequence: u32,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, repeated, tag = "4")]
    args: Vec<Arg>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Arg {
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {}

/// A Perfetto trace under construction. Times are nanoseconds of one clock.
#[derive(Debug, Default)]
pub struct PerfettoTrace {
    bytes: Vec<u8>,
    tracks: u64,
}

impl PerfettoTrace {
    fn push(&mut self, timestamp: Option<u64>, event: Option<Event>, track: Option<Track>) {
        let packet = Packet {
            timestamp,
            sequence: SEQUENCE,
            event,
            track,
        };
        // A message that ends where the next one begins is their sum.
        let packets = vec![packet];
        self.bytes.extend(Packets { packets }.encode_to_vec());
    }

    fn describe(&mut self, name: &str, parent: Option<u64>, counter: Option<Counter>) -> u64 {
        self.tracks += 1;
        let track = Track {
            id: self.tracks,
            name: name.to_string(),
            parent,
            counter,
        };
        self.push(None, None, Some(track));
        self.tracks
    }

    /// Adds a track, below another if one is given. Its slices may not overlap.
    pub fn track(&mut self, name: &str, parent: Option<u64>) -> u64 {
        self.describe(name, parent, None)
    }

    /// Adds a track of a counter.
    pub fn counter(&mut self, name: &str) -> u64 {
        self.describe(name, None, Some(Counter {}))
    }

    /// Adds a slice from one time to another, with arguments by name.
    pub fn slice(
        &mut self,
        track: u64,
        name: &str,
        (from_ns, until_ns): (u64, u64),
        args: &[(&str, String)],
    ) {
        let args = args.iter().map(|(name, text)| Arg {
            text: Some(text.clone()),
            name: Some((*name).to_string()),
        });
        let begin = Event {
            args: args.collect(),
            kind: SLICE_BEGIN,
            track,
            name: Some(name.to_string()),
            counter: None,
        };
        self.push(Some(from_ns), Some(begin), None);
        let end = Event {
            kind: SLICE_END,
            track,
            ..Event::default()
        };
        self.push(Some(until_ns), Some(end), None);
    }

    /// Adds a counter's value from this time on.
    pub fn count(&mut self, track: u64, time_ns: u64, value: i64) {
        let event = Event {
            kind: COUNTER,
            track,
            counter: Some(value),
            ..Event::default()
        };
        self.push(Some(time_ns), Some(event), None);
    }

    /// The file.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_follow_one_another() {
        let mut trace = PerfettoTrace::default();
        let group = trace.track("group", None);
        let track = trace.track("cause", Some(group));
        let counter = trace.counter("blocks");
        let args = [("pfn", "0x200".to_string())];
        trace.slice(track, "dentry", (5, 9), &args);
        trace.count(counter, 5, 1);
        let file = trace.finish();
        // Field 1 of the file, 10 bytes: sequence (field 10) 1; track (field 60) with id 1, ...
        assert_eq!(file[..5], [0x0a, 14, 0x50, 1, 0xe2]);
        let read = Packets::decode(file.as_slice()).unwrap().packets;
        let times: Vec<_> = read.iter().map(|packet| packet.timestamp).collect();
        assert_eq!(times, [None, None, None, Some(5), Some(9), Some(5)]);
        assert_eq!(read[1].track.as_ref().unwrap().parent, Some(group));
        assert_eq!(read[3].event.as_ref().unwrap().args.len(), 1);
        assert_eq!(read[5].event.as_ref().unwrap().counter, Some(1));
    }
}
